"""The directory of one node: what lies where, and who may use it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rq.broker.cluster.gossip import Address
from rq.errors import Busy, Damaged
from rq.files import durable
from rq.journal import history, mark
from rq.layout import HISTORY, JOURNAL, JournalDir
from rq.proc import locks

_MEMBERS = "members"  # files of the directory
_NODE = "node"
_NODE_ID = 20  # bytes
# What a person can do about one that cannot be believed.
ADVICE = "put back the whole directory from a backup, or move it away to begin with an empty one"


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of one node."""

    path: Path

    @property
    def journal_dir(self) -> JournalDir:
        return JournalDir(path=self.path, kind="broker", name=self.path.name)

    @property
    def snapshot(self) -> Path:
        return self.path / "snapshot"

    @property
    def bodies(self) -> Path:
        """Large bodies, a file each."""
        return self.path / "bodies"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def node(self) -> Path:
        """Its id."""
        return self.path / _NODE

    @property
    def copy(self) -> Path:
        """There when a person has said that the directory is a copy, until a start has
        done what follows from that."""
        return self.path / "copy"

    @property
    def settings(self) -> Path:
        """What CONFIG REWRITE keeps of a node without a root."""
        return self.path / "settings.json"

    @property
    def members(self) -> Path:
        """Who else belongs to its cluster."""
        return self.path / _MEMBERS


def take(place: Place) -> int:
    """Make the directory, durably, and take its lock; return the descriptor that holds
    it. Busy: another process runs it."""
    missing = [each for each in place.path.parents if not each.exists()]
    for name in (JOURNAL, HISTORY):
        durable.make_dirs(str(place.path / name))
    for each in (place.path, place.path.parent, *(path.parent for path in missing)):
        durable.sync_path(each)
    lock = locks.lock_soon(place.lock)
    if lock is None:
        raise Busy(f"another process runs the broker in {place.path}: end that first")
    return lock


def node_id(place: Place) -> str:
    """Return the id of a node, made once and kept until it is to be another."""
    with contextlib.suppress(FileNotFoundError):
        return place.node.read_text().strip()
    with _opened(place) as dir_fd:
        return new_node_id(dir_fd)


def new_node_id(dir_fd: int) -> str:
    """Give the node of this directory another id, durably; return it."""
    new_id = secrets.token_hex(_NODE_ID)
    durable.replace_durable(_NODE, f"{new_id}\n".encode(), dir_fd)
    return new_id


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[int]:
    dir_fd = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield dir_fd
    finally:
        os.close(dir_fd)


def copied(place: Place) -> str:
    """Return why a directory is not used that is not where its journal was written."""
    return (
        f"{place.path} was copied or restored from a backup, and nothing is served before "
        "a person says what it is: `rq broker accept` for the same broker, moved here; "
        "the same with `--copy` for a copy, or a backup older than what has run since; "
        "of a node without a supervisor `rq broker run --dir` with `--accept same` or `copy`"
    )


def accept(place: Place, *, copy: bool) -> None:
    """Accept a directory that was copied or restored, as the operator has decided: as
    the same node, or as a `copy`, which gets new ids. Busy: a broker runs in it."""
    lock, journal = take(place), place.journal_dir
    try:
        if copy:
            durable.write_durable(place.copy, b"")
            durable.unlink_durable(place.node)
            durable.unlink_durable(place.members)  # they know the other one
        before = history.journal_of(journal, history.active_segments(journal))
        if before is not None:
            with _opened(place) as dir_fd:
                mark.accept(journal, dir_fd, before, copy=copy)
    finally:
        os.close(lock)


# ---- who belongs to the cluster


@dataclass(frozen=True, slots=True)
class KeptMembers:
    """What a node keeps of its cluster."""

    host: str  # its own address, as others reach it; "": none has
    members: tuple[tuple[str, Address], ...]  # the others


def read_members(place: Place) -> KeptMembers:
    """Return what is kept. Damaged: it cannot be believed."""
    try:
        content = json.loads(place.members.read_bytes())
        rows = [_member(row) for row in content["members"]]
        return KeptMembers(_host(content["host"]), tuple(rows))
    except FileNotFoundError:
        return KeptMembers("", ())
    except (ValueError, LookupError, TypeError) as error:
        raise Damaged(
            f"{place.members} is not what this node has written ({error}): remove it, and "
            "let the node meet the others again"
        ) from None


def write_members(dir_fd: int, kept: KeptMembers) -> None:
    """Keep it, durably, in the directory of the node. OSError: the disk does not take it."""
    rows = [{"id": node_id, **address._asdict()} for node_id, address in kept.members]
    text = json.dumps({"host": kept.host, "members": rows}, indent=1)
    durable.replace_durable(_MEMBERS, f"{text}\n".encode(), dir_fd)


def _member(row: object) -> tuple[str, Address]:
    content = cast("dict[str, object]", row)
    node_id = str(content["id"])
    if len(node_id) != 2 * _NODE_ID or set(node_id) - set("0123456789abcdef"):
        raise ValueError(f"{node_id!r:.60} is no id of a node")
    ports = [content["port"], content["bus_port"]]
    port, bus_port = (each for each in ports if isinstance(each, int))
    return node_id, Address(_host(content["host"]), port, bus_port)


def _host(text: object) -> str:
    return str(ipaddress.ip_address(str(text))) if text else ""
