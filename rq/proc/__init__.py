"""The machine's processes: descriptors, locks, leases, starting, finding and ending.

Linux gives pidfd, /proc and PDEATHSIG; where one is missing a slower portable path is
taken. Nothing here knows what a message is.
"""
