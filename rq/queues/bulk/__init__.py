"""Bulks at work: the messages that a filter means, and what is done to each of them."""
