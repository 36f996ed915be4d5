"""Limits that the kernel keeps for one process and those that it starts from then on."""

from __future__ import annotations

import contextlib
import math
import resource
from dataclasses import replace

from rq.message.limits import Limits
from rq.proc import cgroups
from rq.proc.cgroups import Group


def apply(pid: int, limits: Limits) -> Group | None:
    """Limit a process that has no children yet. Return its control group, if it has one,
    which keeps the limits of memory and processes then."""
    group = cgroups.hold(pid, limits)
    if group is not None:
        limits = replace(limits, memory=None, processes=None)
    for what, (soft, hard) in _resources(limits).items():
        _limit(pid, what, soft, hard)
    return group


def _resources(limits: Limits) -> dict[int, tuple[int, int]]:
    """Return soft and hard limits by their number."""
    resources: dict[int, tuple[int, int]] = {}
    if limits.memory is not None:
        resources[resource.RLIMIT_AS] = limits.memory, limits.memory
    if limits.cpu_seconds is not None:
        # XCPU, which a script may hear, then KILL.
        later = limits.cpu_seconds + max(1, math.ceil(limits.grace or 0))
        resources[resource.RLIMIT_CPU] = limits.cpu_seconds, later
    if limits.open_files is not None:
        resources[resource.RLIMIT_NOFILE] = limits.open_files, limits.open_files
    if limits.processes is not None:
        resources[resource.RLIMIT_NPROC] = limits.processes, limits.processes
    return resources


def _limit(pid: int, what: int, soft: int, hard: int) -> None:
    """Set a limit, never a higher one than there is."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        _, most = resource.prlimit(pid, what)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.prlimit(pid, what, (soft, hard))


def peak_of(max_rss: int | None) -> int | None:
    """Return the most memory that a child had, in bytes; None when it cannot be told:
    what it had of its starter's, before it began, counts as well. `max_rss` in KiB."""
    if max_rss is None:
        return None
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max_rss * 1024 if max_rss > ours else None
