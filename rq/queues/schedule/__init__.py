"""Pure rules on the messages that wait: which runs next."""
