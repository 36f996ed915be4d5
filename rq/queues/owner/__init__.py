"""What the process of a queue knows: what it admits, what waits, and how it goes."""
