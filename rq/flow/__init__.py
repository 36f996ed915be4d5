"""A flow: messages that wait for each other, sent at once. What it is and how it looks; pure."""
