"""Sends the messages of timers/NAME.json, each when it is due.

`rule` is what a timer is, `timer` reads its file, `cron` is a rule of cron, `past` what
was done of it, which `state` reads, `when` the pure
rules of when it fires next. `folder` holds all timers of a root, `sending` fires them and
asks what became of their messages, `commands` answers; `__main__` is the program.
"""
