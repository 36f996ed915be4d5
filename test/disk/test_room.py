"""What is told of a disk that fills: once, before queues refuse messages."""

import os

import pytest

from rq.config import room
from rq.config.settings import RootConfig
from rq.layout import Root


@pytest.mark.parametrize(
    ("part", "faults", "is_full"),
    [(0.8, [], False), (0.95, ["disk_soon"], False), (1.2, [], True)],
)
def test_a_disk_is_told_of_from_a_tenth_above_what_is_kept(
    tmp_path, part, faults, is_full
):
    seen = os.statvfs(tmp_path)
    free = seen.f_bavail * seen.f_frsize
    kept = RootConfig(min_free_bytes=int(free * part), min_free_inodes=0)
    assert [str(it.fault) for it in room.soon(Root(tmp_path), kept)] == faults
    assert (room.lacking(seen, kept) is not None) is is_full
