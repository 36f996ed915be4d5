"""The journal: numbered events in segments, synced by groups, sealed and read back.

It knows neither messages nor queues. It takes a `JournalDir` (where it is, and what its
own lines call it) and numbers whatever its user appends. Of a checkpoint it writes the
envelope; its user puts in the content. The spool is its first user.
"""
