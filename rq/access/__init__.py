"""Who may do what: a request or a peer becomes a Principal, or is refused. Every door
asks here; nothing else decides."""
