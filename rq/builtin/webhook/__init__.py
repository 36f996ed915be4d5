"""The script of the queue `webhook`: posts how a message has ended to a URL.

`signing` has rules; `post` makes the request, `tries` decides what becomes of it.
"""
