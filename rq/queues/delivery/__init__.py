"""Deliveries: what the end of a message owes to other queues, and copies of messages."""
