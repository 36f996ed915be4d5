"""Messages that wait for others: how those stand, what is asked of other queues, and what
follows when the rule of a message has decided."""
