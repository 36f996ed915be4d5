"""Commands about the broker itself and its clients: AUTH to SHUTDOWN, and the HELLO of
Redis. Source: spec/resp.md 0 and 1.13.

`table` names them all; they know the server, which hands itself to them.
"""
