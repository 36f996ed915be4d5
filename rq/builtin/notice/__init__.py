"""The script of the queue `notice`: brings to people what a queue tells of how it goes.

`stories` reads a story, `letter` makes a text of it, `__main__` is one try: it reads
the log, and posts, hands on, or gives the letter to sendmail.
"""
