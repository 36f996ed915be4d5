"""Flows: how one comes in, is sent, is looked at and is ended; for all doors."""
