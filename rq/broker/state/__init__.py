"""What a node holds: jobs, messages, events, and the clients that wait for them. Pure.

It is changed by events alone (`lines.Event`), live and when the journal is read.
"""
