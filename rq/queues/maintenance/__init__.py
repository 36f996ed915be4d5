"""Chores of a queue beside its messages: checkpoints, deposits, retention, stalls."""
