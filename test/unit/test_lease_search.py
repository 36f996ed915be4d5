"""Looking for processes of a lease when no more files can be opened."""

import contextlib
import errno
import os
import resource
import subprocess

import pytest

from rq.proc import processes
from rq.spool import leases

LEASE = "t/search-without-descriptors/"


@contextlib.contextmanager
def free_descriptors(number):
    """Leave so many descriptors, whatever the limit is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@pytest.mark.parametrize("number", [1, 2])
def test_whoever_could_not_look_does_not_say_that_nobody_is_there(number):
    children = [
        subprocess.Popen(["sleep", "60"], env={"RQ_LEASE": f"{LEASE}{slot}"})
        for slot in range(2)
    ]
    try:
        before = set(os.listdir("/proc/self/fd"))
        with (
            free_descriptors(number),
            pytest.raises(OSError, match=os.strerror(errno.EMFILE)),
        ):
            leases.end_processes(LEASE, [], 0.0, patience=0.0)
        assert set(os.listdir("/proc/self/fd")) <= before
        found = list(processes.find_leases(LEASE))
        for one in found:
            os.close(one.pidfd)
        assert {one.pid for one in found} == {one.pid for one in children}
    finally:
        for one in children:
            one.kill()
            one.wait()
