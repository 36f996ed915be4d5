"""The state of a queue's process: what it admits, what waits, settings, and how it
goes."""
