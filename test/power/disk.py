"""A file system of values: what a recording did to it, one operation after the other.

The kernel's view (all is there that was written) is kept while the recording is read; in
the end it must be the very tree that lies on disk, so that nothing can have been missed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from power.trace import MARKS, Call, Word


class NotUnderstood(Exception):
    """The recording holds something that this model of a disk does not know."""


class NotWhole(Exception):
    """What lies on disk is not what the recorded calls have made."""


@dataclass(slots=True, eq=False)
class Node:
    """A file, a directory or a symlink; names belong to directories."""

    kind: str  # "file", "dir", "link"
    mode: int
    number: int
    entries: dict[str, Node] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    base: bytes = b""  # what was there before the recording began
    target: str = ""
    site: str = ""  # the directory under the top that it was made in


@dataclass(frozen=True, slots=True)
class Named:
    """A name was given to a node: create, mkdir, link, symlink."""

    place: Node
    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A name was taken away: unlink, rmdir."""

    place: Node
    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Moved:
    """A rename, over what had the new name."""

    place: Node
    name: str
    to_place: Node
    to_name: str
    node: Node


@dataclass(frozen=True, slots=True)
class Cut:
    """The size of a file was set."""

    node: Node
    size: int


@dataclass(frozen=True, slots=True)
class Moded:
    node: Node
    mode: int


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes were written; `grown` if the file was shorter before."""

    node: Node
    at: int
    data: bytes
    grown: bool


@dataclass(frozen=True, slots=True)
class Synced:
    """A sync returned: of a node, or of all (None); it holds what came before
    operation `since`. `failed`: it reported an error. Of all, its descriptor was `opened`
    before that operation."""

    node: Node | None
    since: int
    data_only: bool = False
    failed: bool = False
    opened: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """What the story says at this point."""

    said: dict[str, Any]


Meta = Named | Unnamed | Moved | Cut | Moded
Op = Meta | Written | Synced | Mark


Descriptor = tuple[int, str]  # process, number


class Disk:
    """Reads a recording; `ops` is what happened under `top`, but not in `besides`."""

    def __init__(self, top: Path, besides: tuple[str, ...] = ()) -> None:
        self.top = str(top)
        self._besides = tuple(f"{top}/{one}/" for one in besides)
        self.ops: list[Op] = []
        self._numbers = 0
        self.root = self._load(top) if top.exists() else self._node("dir", 0o755)
        self._ended: list[tuple[int, int]] = []  # line of the recording: operations
        self._sent: dict[int, int] = {}  # pid: operations when it last sent
        self._process: dict[int, int] = {}  # of a thread that is not its first
        # By descriptor: operations before, and the file that it is open on.
        self.opened: dict[Descriptor, int] = {}
        self.received: dict[Descriptor, str] = {}

    # ---- what is there before

    def _load(self, path: Path) -> Node:
        info = path.lstat()
        node = self._node(_kind(info.st_mode), stat.S_IMODE(info.st_mode))
        if node.kind == "dir":
            for name in sorted(os.listdir(path)):
                if _kind((path / name).lstat().st_mode) != "other":
                    node.entries[name] = self._load(path / name)
        elif node.kind == "file":
            node.base = path.read_bytes()
            node.data[:] = node.base
        else:
            node.target = os.readlink(path)
        return node

    def _node(self, kind: str, mode: int) -> Node:
        self._numbers += 1
        return Node(kind, mode, self._numbers)

    # ---- reading calls

    def played(self, calls: list[Call]) -> Disk:
        """Take all calls of a recording, in the order in which they returned; what they
        made must be what lies on disk."""
        self.play(calls)
        missed = list(_differ(self.root, Path(self.top), self.inside))
        if missed:
            raise NotWhole(f"the recording is not whole: {missed}")
        return self

    def play(self, calls: list[Call]) -> None:
        self.start = _entries(self.root)
        for call in calls:
            act = _ACTS.get(call.name, _unknown)
            if call.result >= 0 or (call.injected and act in (_sync, _sync_all)):
                act(self, call)
            self._ended.append((call.ended, len(self.ops)))

    def _since(self, call: Call) -> int:
        """Return how many operations had returned when `call` began."""
        for ended, count in reversed(self._ended):
            if ended < call.began:
                return count
        return 0

    def add(self, op: Op) -> None:
        self.ops.append(op)

    # ---- names

    def inside(self, path: str) -> bool:
        if f"{path}/".startswith(self._besides):
            return False
        return path == self.top or path.startswith(self.top + "/")

    def find(self, path: str) -> Node | None:
        """Return the node that has the whole name `path`."""
        node: Node | None = self.root
        for part in path[len(self.top) :].strip("/").split("/"):
            if part and node is not None:
                node = node.entries.get(part)
        return node

    def place(self, path: str) -> tuple[Node, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        found = self.find(head)
        if found is None:
            raise NotUnderstood(f"no directory for {path}")
        return found, name

    def file(self, word: Word) -> Node | None:
        """Return what a descriptor is open on; None when it is of no concern."""
        path = word.path or ""
        if not self.inside(path) or path.endswith(" (deleted)"):
            return None
        return self.find(path)

    # ---- descriptors

    def descriptor(self, call: Call, number: str) -> Descriptor:
        """Return a descriptor of the process that calls: all its threads have it, and in
        another process the same number is another one."""
        return self._process.get(call.pid, call.pid), number

    def begun(self, call: Call) -> None:
        """A thread or a process has begun."""
        if any("CLONE_THREAD" in word.text for word in call.words):
            self._process[call.result] = self._process.get(call.pid, call.pid)

    # ---- what calls do

    def name(self, path: str, node: Node) -> None:
        place, name = self.place(path)
        place.entries[name] = node
        self.add(Named(place, name, node))

    def make(self, path: str, kind: str, mode: int, target: str = "") -> None:
        node = self._node(kind, mode)
        node.target = target
        node.site = path[len(self.top) :].split("/")[1]
        self.name(path, node)

    def open(self, path: str, flags: str, mode: int) -> None:
        node = self.find(path)
        if node is None and "O_TMPFILE" not in flags:
            self.make(path, "file", mode)
        elif node is not None and "O_TRUNC" in flags and node.data:
            self.cut(node, 0)

    def cut(self, node: Node, size: int) -> None:
        _resize(node.data, size)
        self.add(Cut(node, size))

    def write(self, node: Node, at: int, data: bytes) -> None:
        if not data:
            return
        grown = at + len(data) > len(node.data)
        _write(node.data, at, data)
        self.add(Written(node, at, data, grown))

    def unname(self, path: str) -> None:
        place, name = self.place(path)
        self.add(Unnamed(place, name, place.entries.pop(name)))

    def move(self, source: str, target: str) -> None:
        place, name = self.place(source)
        to_place, to_name = self.place(target)
        node = place.entries.pop(name)
        to_place.entries[to_name] = node
        self.add(Moved(place, name, to_place, to_name, node))

    def sync(self, call: Call, node: Node | None) -> None:
        failed = call.result < 0
        data_only = call.name == "fdatasync"
        by = call.words[0].text if call.name == "syncfs" else ""
        opened = self.opened.get(self.descriptor(call, by), 0)
        self.add(Synced(node, self._since(call), data_only, failed, opened))

    def mark(self, data: bytes) -> None:
        """Take a mark, if it is of this disk; one that tells of an answer belongs where
        the answer left."""
        said = json.loads(data)
        if said.pop("top", self.top) != self.top:
            return
        whose = said.pop("answered_by", None)
        if whose is None:
            self.add(Mark(said))
            return
        at = self._sent[whose]
        self.ops[at:] = [Mark(said), *(_later(one, at) for one in self.ops[at:])]
        self._ended = [(e, c + 1 if c > at else c) for e, c in self._ended]
        self._sent = {pid: n + 1 if n > at else n for pid, n in self._sent.items()}

    def sent(self, pid: int) -> None:
        self._sent[pid] = len(self.ops)


def _later(op: Op, at: int) -> Op:
    """Return an operation as it is when another was put in at `at`."""
    if isinstance(op, Synced) and op.since > at:
        op = replace(op, since=op.since + 1)
    if isinstance(op, Synced) and op.opened > at:
        op = replace(op, opened=op.opened + 1)
    return op


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "dir"
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def _entries(node: Node) -> dict[Node, dict[str, Node]]:
    """Return all directories with what they hold now."""
    if node.kind != "dir":
        return {}
    found = {node: dict(node.entries)}
    for one in node.entries.values():
        found |= _entries(one)
    return found


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _write(data: bytearray, at: int, more: bytes) -> None:
    if at > len(data):
        _resize(data, at)
    data[at : at + len(more)] = more


def _differ(node: Node, path: Path, inside: Callable[[str], bool]) -> Iterator[str]:
    if node.kind == "file":
        if path.read_bytes() != bytes(node.data):
            yield f"{path}: {len(node.data)} bytes, and others on disk"
    elif node.kind == "dir":
        there = {
            name
            for name in os.listdir(path)
            if inside(f"{path}/{name}")
            and _kind((path / name).lstat().st_mode) != "other"
        }
        if there != set(node.entries):
            yield f"{path}: {sorted(there ^ set(node.entries))}"
        for name in there & set(node.entries):
            yield from _differ(node.entries[name], path / name, inside)


# ---- one function for each call


def _at(where: Word, path: bytes) -> str:
    """Return a whole path from a directory's descriptor and a name."""
    return os.path.normpath(os.path.join(where.path or "/", os.fsdecode(path)))


def _paths(call: Call) -> list[str]:
    """Return the whole paths that a call names, in their order."""
    found, where = [], None
    for word in call.words:
        if word.path is not None:
            where = word
        elif word.data is not None:
            path = os.fsdecode(word.data)
            if where is None and not path.startswith("/"):
                raise NotUnderstood(f"a relative path: {call.name} {path}")
            found.append(path if where is None else _at(where, word.data))
            where = None
    return found


UMASK = 0o022


def _mode(call: Call) -> int:
    how = [w.text[5:] for w in call.words if w.text.startswith("mode=")]  # openat2
    last = how[0] if how else call.words[-1].text
    return int(last, 8) & ~UMASK if last.isdigit() else 0o644


_FLAGS = ("O_", "flags=")


def _open(disk: Disk, call: Call) -> None:
    flags = next((w.text for w in call.words if w.text.startswith(_FLAGS)), "")
    descriptor = disk.descriptor(call, str(call.result))
    disk.opened[descriptor] = len(disk.ops)
    disk.received.pop(descriptor, None)
    if call.opened is not None:
        disk.received[descriptor] = call.opened
    if "O_CREAT" in flags or "O_TRUNC" in flags:
        path = _paths(call)[0]
        if disk.inside(path):
            disk.open(path, flags, _mode(call))


def _write_call(disk: Disk, call: Call) -> None:
    word = call.words[0]
    data = b"".join(one.data for one in call.words if one.data is not None)
    if word.text == str(MARKS):
        disk.mark(data)
    elif (word.path or "").startswith("socket:"):
        _send(disk, call)
    elif (node := disk.file(word)) is not None:
        at = len(node.data)  # nothing here writes elsewhere without saying where
        if call.name.startswith("pwrite"):
            at = int(call.words[-1].text)
        disk.write(node, at, data[: call.result])


def _send(disk: Disk, call: Call) -> None:
    if call.words[1].data != b"\0":  # with which a thread wakes the loop
        disk.sent(call.pid)


def _receive(disk: Disk, call: Call) -> None:
    for one in call.words[1:]:
        if one.path is not None:
            disk.received[disk.descriptor(call, one.text)] = one.path


def _send_file(disk: Disk, call: Call) -> None:
    if not (call.words[0].path or "").startswith("socket:"):
        _unknown(disk, call)
    disk.sent(call.pid)


def _cut(disk: Disk, call: Call) -> None:
    path = call.words[0].path or _paths(call)[0]
    node = disk.find(path) if disk.inside(path) else None
    if node is not None:
        disk.cut(node, int(call.words[-1].text))


def _rename(disk: Disk, call: Call) -> None:
    source, target = _paths(call)
    if disk.inside(source) != disk.inside(target):
        raise NotUnderstood(f"a rename in or out: {source} {target}")
    if disk.inside(source):
        disk.move(source, target)


_OWN = "/proc/self/fd/"


def _link(disk: Disk, call: Call) -> None:
    source, target = _paths(call)
    if source.startswith(_OWN):
        source = disk.received[disk.descriptor(call, source.removeprefix(_OWN))]
    if disk.inside(target):
        node = disk.find(source)
        if node is None:
            raise NotUnderstood(f"a link from elsewhere: {source}")
        disk.name(target, node)


def _unlink(disk: Disk, call: Call) -> None:
    path = _paths(call)[0]
    if disk.inside(path) and disk.find(path) is not None:
        disk.unname(path)


def _mkdir(disk: Disk, call: Call) -> None:
    path = _paths(call)[0]
    if disk.inside(path) and path != disk.top:
        disk.make(path, "dir", _mode(call))


def _symlink(disk: Disk, call: Call) -> None:
    target = os.fsdecode(call.words[0].data or b"")
    path = _at(call.words[1], call.words[2].data or b"") if len(call.words) > 2 else ""
    path = path or os.fsdecode(call.words[1].data or b"")
    if disk.inside(path):
        disk.make(path, "link", 0o777, target)


def _chmod(disk: Disk, call: Call) -> None:
    path = call.words[0].path if call.name == "fchmod" else _paths(call)[0]
    node = disk.find(path or "") if disk.inside(path or "") else None
    if node is not None:
        modes = [w.text for w in call.words if w.text.isdigit() and w.path is None]
        node.mode = int(modes[0], 8)
        disk.add(Moded(node, node.mode))


def _sync(disk: Disk, call: Call) -> None:
    if (node := disk.file(call.words[0])) is not None:
        disk.sync(call, node)


def _sync_all(disk: Disk, call: Call) -> None:
    disk.sync(call, None)


def _nothing(disk: Disk, call: Call) -> None:
    """What an ioctl does here: it fails, or asks about a terminal."""
    if any("FICLONE" in one.text for one in call.words) and call.result == 0:
        raise NotUnderstood("a file was cloned")


def _unknown(disk: Disk, call: Call) -> None:
    if any(disk.inside(one.path or "") for one in call.words):
        raise NotUnderstood(f"{call.name} on {call.words}")


_ACTS: dict[str, Callable[[Disk, Call], None]] = {
    **dict.fromkeys(("open", "openat", "openat2", "creat"), _open),
    **dict.fromkeys(("write", "pwrite64", "writev"), _write_call),
    **dict.fromkeys(("sendto", "sendmsg"), _send),
    "sendfile": _send_file,
    "recvmsg": _receive,
    **dict.fromkeys(("truncate", "ftruncate"), _cut),
    **dict.fromkeys(("rename", "renameat", "renameat2"), _rename),
    **dict.fromkeys(("link", "linkat"), _link),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), _unlink),
    **dict.fromkeys(("mkdir", "mkdirat"), _mkdir),
    **dict.fromkeys(("symlink", "symlinkat"), _symlink),
    **dict.fromkeys(("chmod", "fchmod", "fchmodat", "fchmodat2"), _chmod),
    **dict.fromkeys(("fsync", "fdatasync"), _sync),
    **dict.fromkeys(("syncfs", "sync"), _sync_all),
    "ioctl": _nothing,
    **dict.fromkeys(("clone", "clone3", "fork", "vfork"), Disk.begun),
}
