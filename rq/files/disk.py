"""What a path's file system is, and what can be promised on it; only reads."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rq.words.wording import size

INODES_PER_MESSAGE = 5  # folder, msg, status, job, stdio.log
BYTES_PER_MESSAGE = 5 * 4096
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "glusterfs", "lustre"}
)
_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_JOURNALED = frozenset({"xfs", "btrfs", "zfs", "jfs", "f2fs", "bcachefs"})
_FULL_BYTES = 1024 * 1024  # with less nothing can start
_FULL_FILES = 100

# Where a copy at each start is the rule, and where inode numbers change by themselves.
_UNMARKED = _MEMORY
_RENUMBERED = frozenset({"overlay", "9p", "cifs", "smb3", "vfat", "exfat", "?"})
_AT_EMPTY_PATH, _STATX_BTIME = 0x1000, 0x800  # <fcntl.h>, <linux/stat.h>
_STATX_BYTES, _BTIME_AT = 256, 80  # of struct statx, and of its stx_btime

Identity = tuple[
    int, int | None
]  # a file: inode number; when it was made, in ns, if known


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """A mounted file system, as the path sees it; None where nobody can know."""

    path: Path
    mount: str = "?"
    device: str = "?"
    kind: str = "?"
    options: tuple[str, ...] = ()
    has_journal: bool | None = None
    data_mode: str | None = None  # of ext: ordered, journal, writeback
    dir_nlink: bool | None = None
    free_bytes: int = 0
    free_inodes: int | None = None  # None: made as needed

    @property
    def room_messages(self) -> int:
        """How many more finished messages fit, by what runs out first."""
        by_bytes = self.free_bytes // BYTES_PER_MESSAGE
        if self.free_inodes is None:
            return by_bytes
        return min(by_bytes, self.free_inodes // INODES_PER_MESSAGE)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the promise does not hold here in full, a sentence each."""
        return tuple(_warnings(self))

    @property
    def promise(self) -> str:
        """What can be promised here."""
        if any(_power_cuts(self)):
            return (
                "an accepted message survives kill -9 of every RQ process; "
                "a power cut or kernel panic may lose it"
            )
        return (
            "an accepted message survives kill -9 and, on a disk that honours syncs, "
            "a power cut"
        )


def lack(path: Path) -> str | None:
    """Return in a sentence that the disk of `path` is full; None while it has room."""
    room = os.statvfs(path)
    bytes_free = room.f_bavail * room.f_frsize
    if bytes_free >= _FULL_BYTES and (not room.f_files or room.f_favail >= _FULL_FILES):
        return None
    return (
        f"the disk of {path} is full ({size(bytes_free)} and {room.f_favail:,} "
        "inodes free): free some, then try again"
    )


def describe(path: Path) -> FileSystem:
    """Return what the file system of `path` is; never fails for want of a fact."""
    room = os.statvfs(path)
    mount, device, kind, options = _mount_of(path)
    facts = _ext_facts(device) if kind.startswith("ext") else {}
    if kind == "ext2":
        has_journal: bool | None = False
    elif facts:
        has_journal = "has_journal" in facts
    else:
        has_journal = True if kind in _JOURNALED else None
    return FileSystem(
        path=path,
        mount=mount,
        device=device,
        kind=kind,
        options=options,
        has_journal=has_journal,
        data_mode=facts.get("data") if has_journal else None,
        dir_nlink="dir_nlink" in facts if facts.get("features") else None,
        free_bytes=room.f_bavail * room.f_frsize,
        free_inodes=room.f_favail if room.f_files else None,
    )


def identity(fd: int) -> Identity:
    """Return what tells a file from every copy of it, wherever it is renamed to."""
    return os.fstat(fd).st_ino, _born(fd)


def is_same(before: Identity, now: Identity, kind: str) -> bool:
    """Return whether a file is the same as before, on a file system of this kind; also
    when nobody can say.

    Its number has to be the same, unless the file system gives others after a mount;
    and when it was made, which no program can set, where that is known.
    """
    if kind in _UNMARKED:
        return True
    if before[1] and now[1] and before[1] != now[1]:
        return False
    return kind in _RENUMBERED or kind.startswith("fuse") or before[0] == now[0]


_libc = ctypes.CDLL(None, use_errno=True)


def _born(fd: int) -> int | None:
    """Return when a file was made, in ns; None where the file system does not keep it."""
    if not hasattr(_libc, "statx"):
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", buffer, 0)
    if not mask & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds) or None  # 0: made with the image


def _power_cuts(fs: FileSystem) -> Iterator[str]:
    """Yield why a power cut may lose what was accepted."""
    kind = _warning_of_kind(fs)
    if kind:
        yield kind
    if {"nobarrier", "barrier=0"} & set(fs.options):
        yield "it is mounted without barriers, so a sync may not reach the disk"
    if fs.data_mode == "writeback":
        yield "data=writeback: afterwards files may be there without their content"


def _warnings(fs: FileSystem) -> Iterator[str]:
    yield from (f"power cuts may lose messages: {why}" for why in _power_cuts(fs))
    if fs.dir_nlink is False:
        yield "a directory holds at most 65,000 folders here (ext4 without dir_nlink)"


def _warning_of_kind(fs: FileSystem) -> str | None:
    kind = fs.kind
    if kind in _NETWORK or kind.startswith("fuse"):
        return (
            f"{kind} is a file system of another machine or program, whose locks and "
            "syncs cannot be relied on; use a local one"
        )
    if kind in _MEMORY:
        return f"{kind} is in memory: after a restart everything is gone"
    if kind == "overlay":
        return (
            "an overlay is removed with its container, and may lie on any disk: give RQ "
            "a volume of its own"
        )
    if fs.has_journal is False:
        return (
            f"this {kind} has no journal, so folders may be missing or mixed up afterwards "
            "(while it is unmounted, `tune2fs -O has_journal DEVICE` adds one)"
        )
    if fs.has_journal is None:
        return f"it is not known whether {kind} keeps a journal"
    return None


def _mount_of(path: Path) -> tuple[str, str, str, tuple[str, ...]]:
    """Return (mount point, device, type, options) from /proc/self/mountinfo."""
    number = os.stat(path).st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    real = os.path.realpath(path)
    best: tuple[str, str, str, tuple[str, ...]] = ("?", "?", "?", ())
    for mount, device_number, kind, device, options in _mounts():
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if not inside or (device_number != wanted and kind != "btrfs"):
            continue
        if best[0] == "?" or len(mount) >= len(best[0]):
            best = (mount, device, kind, options)
    return best


def _mounts() -> Iterator[tuple[str, str, str, str, tuple[str, ...]]]:
    try:
        data = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return
    # The kernel spells what parts fields and lines; all else is part of a name.
    for line in data.decode("utf-8", "replace").split("\n"):
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if len(fields) < 6 or len(tail) < 3:
            continue
        options = (*fields[5].split(","), *tail[2].split(","))
        yield _unescaped(fields[4]), fields[2], tail[0], tail[1], options


def _unescaped(text: str) -> str:
    for code, char in (
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ):
        text = text.replace(code, char)
    return text


def _ext_facts(device: str) -> dict[str, str]:
    """Return has_journal, data=MODE and features, from /proc or from the disk itself.

    The kernel lists its options by the device's own name, also for /dev/root.
    """
    name = os.path.basename(os.path.realpath(device))
    facts = _superblock(device)
    for kind in ("ext4", "ext3", "ext2"):
        try:
            text = Path(f"/proc/fs/{kind}/{name}/options").read_text()
        except OSError:
            continue
        for line in text.split():
            key, _, value = line.partition("=")
            facts.setdefault(key, value)
        if "data" in facts:
            facts.setdefault("has_journal", "")
        break
    return facts


_SUPERBLOCK = 1024
_MAGIC = 0xEF53


def _superblock(device: str) -> dict[str, str]:
    """Read the feature words of an ext superblock; {} where we may not."""
    try:
        fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        block = os.pread(fd, 1024, _SUPERBLOCK)
    except OSError:
        return {}
    finally:
        os.close(fd)
    if len(block) < 1024 or int.from_bytes(block[56:58], "little") != _MAGIC:
        return {}
    facts = {"features": ""}
    if int.from_bytes(block[92:96], "little") & 0x4:
        facts["has_journal"] = ""
    if int.from_bytes(block[100:104], "little") & 0x20:
        facts["dir_nlink"] = ""
    return facts
