"""How a queue does several things at once: turns of its loop, tasks, threads."""
