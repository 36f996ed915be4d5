"""Commands about the broker itself and its clients: AUTH to SHUTDOWN, and the HELLO of
Redis. What they answer: docs/reference/broker.md.

`table` names them all; the process hands it to the server, which hands itself to them.
"""
