"""Sends the messages of timers/NAME.json, each once a period.

`timer` is what a file says, `past` what was done of it and when it is due again, and
`sending` does it; `__main__` is the program.
"""
