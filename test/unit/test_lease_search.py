"""Looking for processes of a lease when no more files can be opened."""

import errno
import os
import subprocess

import pytest
from harness.limits import free_descriptors, no_descriptors

from rq.proc import lease_holders, processes

LEASE = "t/search-without-descriptors/"


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
            lease_holders.end_processes(LEASE, [], 0.0, patience=0.0)
        assert set(os.listdir("/proc/self/fd")) <= before
        found = list(processes.find_leases(LEASE))
        for one in found:
            os.close(one.pidfd)
        assert {one.pid for one in found} == {one.pid for one in children}
    finally:
        for one in children:
            one.kill()
            one.wait()


def test_a_machine_that_cannot_be_looked_at_has_not_been_started_anew():
    # Nobody would look for what an earlier owner has left at work.
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        processes.boot_id()
