"""The control socket of a queue: connections, commands, and what they show."""
