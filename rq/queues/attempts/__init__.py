"""Attempts: what one is from its claim to its end, alone, in a batch, by a worker that stays."""
