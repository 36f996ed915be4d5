"""The control socket of a queue: connections, verbs, and what they show."""
