"""States, their rules, and words for people: times, sizes, sentences; nothing else of RQ."""
