"""The script of the queue `relay`: hands a message over to a queue of another host."""
