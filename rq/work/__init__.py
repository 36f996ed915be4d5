"""`rq work`: an agent that works on messages of a queue of another host, under leases.

It needs no daemon and no root: a URL, a token, a script, and a directory of its own.
"""
