"""A reliable queue: a queue is a directory, a message is a folder of JSON."""

__version__ = "4.0.0"
