"""Attempts from claim to end: of a script, of a long-lived worker, of a batch."""
