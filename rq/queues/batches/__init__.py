"""Batches: messages that one process works on together."""
