"""Messages: their fields, what may be done to them, why they are where they are."""
