"""The script of the queue `notice`: brings to people what a queue tells of how it goes.

`stories` reads a story, `letter` makes a text of it, `last_lines` reads the log, `mail`
hands a letter to sendmail; `__main__` is one try.
"""
