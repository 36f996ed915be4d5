"""The bridge: a queue called `rq:NAME` is RQ's queue NAME.

What clients send goes to its owner; what they get they hold under leases, as any worker
elsewhere does. Nothing of it is kept here but the tokens of these leases (`holdings`).
"""
