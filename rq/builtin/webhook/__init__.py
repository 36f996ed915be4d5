"""The script of the queue `webhook`: posts how a message has ended to a URL.

`signing`, `outcome` and `body` are rules; `post` makes the request.
"""
