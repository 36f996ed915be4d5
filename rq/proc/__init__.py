"""The machine's processes: descriptors, locks, leases, starting, finding and ending.

Linux gives pidfd, /proc and PDEATHSIG; where one is missing a slower portable path is
taken. Nothing here reads a message; `lease_holders` knows where it lies while it runs,
and that a process has its id.
"""
