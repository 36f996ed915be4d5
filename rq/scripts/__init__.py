"""A script at work: its environment, descriptors, start, log, words and end; no queue."""
