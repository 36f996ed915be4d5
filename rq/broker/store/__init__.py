"""What makes the events of a node durable, and finds them again at a start: a journal, a
snapshot, and files of large bodies, in a directory of its own.
"""
