"""Attempts: a message is claimed, its script starts, reports, ends, is cleared away."""
