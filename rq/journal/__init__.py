"""The journal: numbered events in segments, synced by groups, sealed and read back."""
