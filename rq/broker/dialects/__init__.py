"""The commands of the broker: each dialect is a table of names and what they do."""
