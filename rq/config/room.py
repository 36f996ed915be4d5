"""Whether the disk has room: RQ keeps a little of it to finish with, and says it before."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rq.config.settings import RootConfig
from rq.layout import Root
from rq.replies.verdict import Fault, Trouble
from rq.words.wording import size

EARLY = 1.1  # times what is kept: from here on a person is told


def lacking(room: os.statvfs_result, kept: RootConfig) -> str | None:
    """Return why a disk has no room for anything new; None while it has."""
    free = room.f_bavail * room.f_frsize
    if free < kept.min_free_bytes:
        return (
            f"the disk is full: {size(free)} free, and RQ keeps "
            f"{size(kept.min_free_bytes)}; free some, or lower min_free_bytes in "
            "config/config.json"
        )
    if room.f_files and room.f_favail < kept.min_free_inodes:
        return (
            f"the disk is out of inodes: {room.f_favail:,} free, and RQ keeps "
            f"{kept.min_free_inodes:,}; free some, or lower min_free_inodes in "
            "config/config.json"
        )
    return None


def soon(root: Root, kept: RootConfig) -> Iterator[Trouble]:
    """Give, once for all queues, that a disk has hardly more room than RQ keeps; of one
    that is full the queues tell."""
    try:
        room = os.statvfs(root.path)
    except OSError:  # all else says that it is gone
        return
    if lacking(room, kept) is None and (why := _little(room, kept)):
        yield Trouble(fault=Fault.DISK_SOON, who="the disk", why=why)


def _little(room: os.statvfs_result, kept: RootConfig) -> str:
    free = room.f_bavail * room.f_frsize
    if free < kept.min_free_bytes * EARLY:
        return (
            f"{size(free)} free, and below {size(kept.min_free_bytes)} RQ accepts "
            "nothing: free some"
        )
    if room.f_files and room.f_favail < kept.min_free_inodes * EARLY:
        return (
            f"{room.f_favail:,} inodes free, and below {kept.min_free_inodes:,} RQ "
            "accepts nothing: free some"
        )
    return ""
