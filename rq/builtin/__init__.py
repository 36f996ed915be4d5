"""The programs that bundled queues run: webhooks, notices, the router, the cleaner, commands."""
