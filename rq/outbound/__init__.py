"""What leaves this machine: which addresses a request of the relay or of a webhook may go
to, the connection there, and what the operator has set for single hosts."""
