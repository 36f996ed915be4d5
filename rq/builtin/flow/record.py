"""What lies on disk of a flow: its plan, and which messages were sent.

Both lie in the folder of F, the message of the queue `flow` that sends the others. The plan
is an attachment, so it is whole and on disk before F is accepted. `sent.jsonl` is written as
messages are accepted, and synced before F says that it is done: a flow that has begun never
loses the way to its messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from rq.errors import BadInput, CannotRead, NoSuchMessage
from rq.files import beneath
from rq.flow import plan as plans
from rq.flow.plan import Plan
from rq.layout import ATTACH, JOB, MSG, Root
from rq.spool import folders

QUEUE = "flow"
PLAN = "flow.json"
SENT = "sent.jsonl"
CANCELLED = "cancelled.jsonl"  # names of messages that were ended with the flow
END = ".end"  # the message that tells the end; no name of a node begins with a dot
ENDED = "refused.json"  # why it is not begun, decided for good
LARGEST = 64 * 1024 * 1024  # bytes of such a file
_TRIES = 5  # a folder may be moved while it is opened
NO_PLAN = (
    f"it has no plan: a message of the queue {QUEUE} is made by `rq flow run FILE`, by "
    "POST /api/v1/flows or by a timer with `flow`"
)


def folder_of(root: Root, msg_id: str) -> Path:
    """Return the folder of a flow; NoSuchMessage: there is none."""
    queue = root.queue(QUEUE)
    state = folders.find(queue, msg_id)
    if state is None:
        raise NoSuchMessage(f"there is no flow {msg_id}")
    return queue.message(state, msg_id)


class Record(NamedTuple):
    """What lies on disk of a flow."""

    plan: Plan
    sent: Mapping[str, str]  # QUEUE/ID by name
    by: str  # who has sent it; "": RQ itself
    cancelled: frozenset[str]  # names of those that a person has ended with the flow
    end: str  # id of the message that tells its webhooks; "": none does


def read(root: Root, msg_id: str) -> Record:
    """Return what lies on disk of a flow; NoSuchMessage: there is none."""
    for _ in range(_TRIES):
        folder = folder_of(root, msg_id)
        try:
            plan, ended = plan_in(folder), frozenset(_lines(folder, CANCELLED))
            sent = sent_in(folder)
            end = sent.pop(END, "").rpartition("/")[2]
            return Record(plan, sent, by_in(folder), ended, end)
        except FileNotFoundError:
            continue  # it was just being moved
    raise NoSuchMessage(f"{msg_id} is no flow: {NO_PLAN}")


def plan_in(folder: Path) -> Plan:
    """Return the plan in a folder; FileNotFoundError: there is none."""
    try:
        return plans.parse(orjson.loads(_read(folder, f"{ATTACH}/{PLAN}")))
    except (orjson.JSONDecodeError, BadInput) as error:
        raise CannotRead(f"the plan of {folder.name} cannot be used: {error}") from None


def by_in(folder: Path) -> str:
    """Return who has sent the flow in a folder."""
    fields = orjson.loads(_read(folder, MSG))
    return str(fields.get("by") or "")


def sent_in(folder: Path) -> dict[str, str]:
    """Return the QUEUE/ID of messages that were sent, by their names."""
    return {str(name): str(target) for name, target in _lines(folder, SENT)}


def _lines(folder: Path, name: str) -> list[Any]:
    """Return the lines of a file that is written bit by bit; none, if it is not there."""
    try:
        data = _read(folder, f"{JOB}/{name}")
    except FileNotFoundError:
        return []
    return list(map(orjson.loads, data.split(b"\n")[:-1]))  # the last may be torn


def _read(folder: Path, inner: str) -> bytes:
    with beneath.top(folder, os.O_NOFOLLOW) as top:
        fd = beneath.open_plain(inner, top, os.O_RDONLY)
        with open(fd, "rb") as file:
            return file.read(LARGEST)


def note_cancelled(root: Root, msg_id: str, ended: Iterable[str]) -> None:
    """Keep which messages a person ends with a flow: one that waited leaves nothing else
    that tells it from one that has expired."""
    lines = b"".join(orjson.dumps(name) + b"\n" for name in ended)
    with beneath.top(folder_of(root, msg_id) / JOB, os.O_NOFOLLOW) as top:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = beneath.open_plain(CANCELLED, top, flags)
        with open(fd, "wb") as file:
            file.write(lines)


class Sent:
    """The file that is written as messages are accepted; in the directory of the script."""

    def __init__(self, folder: Path) -> None:
        """Begin it once more: each attempt sends all, and finds what stands already."""
        with beneath.top(folder / JOB, os.O_NOFOLLOW) as top:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            self._fd = beneath.open_plain(SENT, top, flags)

    def add(self, rows: Iterable[tuple[str, str]]) -> None:
        lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
        with memoryview(lines) as view:
            written = 0
            while written < len(view):
                written += os.write(self._fd, view[written:])

    def close(self) -> None:
        """Bring it to disk."""
        os.fsync(self._fd)
        os.close(self._fd)


def by_queue(targets: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids in some QUEUE/ID, by their queues."""
    ids: dict[str, list[str]] = {}
    for target in targets:
        queue, _, msg_id = target.partition("/")
        ids.setdefault(queue, []).append(msg_id)
    return ids
