"""Asks the broker of a root: what it holds and for whom, and what a person changes."""
