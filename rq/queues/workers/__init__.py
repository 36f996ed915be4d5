"""Long-lived workers: scripts that stay and take one message after the other."""
