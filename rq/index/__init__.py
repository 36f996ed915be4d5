"""What happened, for questions about many messages: a file beside the journals.

It is never the truth. Owners, recovery, retention and `check` do not read it; it is made
again from the journals whenever it is gone, damaged, or of another version.
"""
