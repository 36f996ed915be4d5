"""The machine's processes: descriptors, locks, leases, starting, finding and ending.

pidfd is a must (Linux 5.3). Where /proc, prctl or SO_PEERCRED is missing, less is known
of others and the rest goes on. Nothing here knows what a message is.
"""
