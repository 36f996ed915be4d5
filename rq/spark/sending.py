"""Send the results of a job once, whatever is killed on the way.

1. Each message is prepared at its queue under a key, and its attachments with it.
2. What was prepared is written, durably, beside every message that is in the result.
3. The messages are committed in order; the first one decides.

A later start that finds such a note asks whether the first was committed. If it was, the
others are committed too and the messages have been dealt with; if not, nothing was sent.
Of a job that writes tables, too, the list of their files decides (`writes`), and these are
to be seen before the first message is committed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rq import names
from rq.errors import BadInput, NoSuchMessage, WrongState
from rq.layout import JOB, Root
from rq.message import lineage
from rq.rpc import client
from rq.spark import writes
from rq.spark.given import Batch, Given
from rq.spark.writes import Table
from rq.spool import script_files
from rq.words.nesting import Json

NOTE = "spark.json"  # in job/ of each message that is in a result
REMEMBERED = 6.5 * 86400.0  # seconds; queues know a key for seven days
RELAY = "relay"
ORIGIN = lineage.MADE_FROM  # a field of what is sent: the messages behind it
_NAMED = 100  # of these are named


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that a job wants to send when all else is done."""

    dest: str
    fields: Mapping[str, Json] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @property
    def queue(self) -> str:
        """The queue that takes it here."""
        return RELAY if names.is_remote(self.dest) else names.queue_name(self.dest)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that waits for its commit."""

    queue: str
    msg_id: str
    key: str

    @property
    def name(self) -> str:
        return f"{self.queue}/{self.msg_id}"


@dataclass(frozen=True, slots=True)
class Result:
    """What one start has made of its messages."""

    sent: list[Prepared]
    wrote: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Note:
    """What an earlier start had prepared."""

    sent: list[Prepared]
    wrote: str = ""  # the key of its tables
    is_old: bool = False  # queues may have forgotten what was sent

    @property
    def key(self) -> str:
        return self.wrote or (self.sent[0].key if self.sent else "")


class Sender:
    """Sends for the messages of one queue."""

    def __init__(self, root: Root, queue: str) -> None:
        self._root = root
        self._queue = queue

    def prepare(
        self,
        letters: Sequence[Letter],
        given: Sequence[Given],
        origin: Mapping[str, Json],
        wrote: str = "",
    ) -> list[Prepared]:
        """Prepare all letters, which say of which messages they were made, and note them
        beside each message, and the key of the tables that were written."""
        if not letters and not wrote:
            return []
        base = f"spark/{self._queue}/{secrets.token_hex(16)}"
        prepared = [
            self._prepare(letter, f"{base}/{n}", origin)
            for n, letter in enumerate(letters)
        ]
        note = {
            "time": time.time(),
            "sent": [[entry.queue, entry.msg_id, entry.key] for entry in prepared],
            **({"wrote": wrote} if wrote else {}),
        }
        for message in given:
            message.job.mkdir(exist_ok=True)
            script_files.write_json(message.folder, f"{JOB}/{NOTE}", note)
        return prepared

    def commit(self, prepared: Iterable[Prepared], *, forgotten: bool = False) -> None:
        """Let prepared messages be accepted; harmless when they have been. `forgotten`:
        their queues may know neither key nor message any more."""
        for entry in prepared:
            request = {"msg_id": entry.msg_id, "_key": entry.key}
            try:
                self._ask(entry.queue, "commit_message", request)
            except (NoSuchMessage, WrongState):
                if not forgotten:
                    raise

    def sent_before(self, batch: Batch) -> dict[str, Result]:
        """Return the messages that an earlier start has dealt with, and what it made.

        Ensures that all of that is accepted, and to be seen.
        """
        settled: dict[str, Result | None] = {}  # by key
        results = {}
        for message in batch.messages:
            note = _noted(message, self._queue)
            if note is None or not note.key:
                continue
            if note.key not in settled:
                settled[note.key] = self._settled(note)
            if result := settled[note.key]:
                results[message.msg_id] = result
        return results

    def _prepare(
        self, letter: Letter, key: str, origin: Mapping[str, Json]
    ) -> Prepared:
        fields: dict[str, Json] = {"dest": letter.dest, **letter.fields}
        fields |= {ORIGIN: dict(origin), "_key": key}
        full, _state = self._begin(letter.queue, fields)
        for path in letter.files:
            request = {
                "msg_id": full,
                "pathname": str(path.absolute()),
                "name": path.name,
            }
            self._ask(letter.queue, "attach_message", request)
        return Prepared(letter.queue, full, key)

    def _settled(self, note: _Note) -> Result | None:
        """Return what was made, all of it now; None if it was not decided."""
        wrote: list[Table] | None = []
        if note.wrote:
            wrote = writes.finish(self._queue, note.wrote)
        elif not self._is_sent(note.sent[0]):
            wrote = None
        if wrote is not None:
            self.commit(note.sent, forgotten=note.is_old)
            return Result(note.sent, wrote)
        for entry in note.sent:
            self._reply(entry.queue, "delete_message", {"msg_id": entry.msg_id})
        return None

    def _is_sent(self, first: Prepared) -> bool:
        fields = {"dest": first.queue, "_key": first.key}
        return self._begin(first.queue, fields)[1] != "prep"

    def _begin(self, queue: str, fields: Mapping[str, Json]) -> tuple[str, str]:
        """Prepare a message under its key; return its id and what it is now."""
        reply = self._reply(queue, "prep_message", fields)
        client.demanded(reply, f"{queue}: ")
        return names.msg_id(str(reply[1]).rpartition("/")[2]), str(reply[2])

    def _ask(self, queue: str, command: str, request: Mapping[str, Json]) -> None:
        client.demanded(self._reply(queue, command, request), f"{queue}: ")

    def _reply(
        self, queue: str, command: str, request: Mapping[str, Json]
    ) -> Sequence[Json]:
        if not self._root.queue(queue).path.is_dir():
            raise BadInput(f"there is no queue {queue} to send to")
        reply = client.ask(self._root.queue(queue).socket, command, dict(request))
        return cast(Sequence[Json], reply)


def origin(queue: str, batch_id: str, given: Sequence[Given]) -> dict[str, Json]:
    """Return what a result says of the messages that it was made from: of this start
    alone, for what an earlier one has prepared may be of others."""
    return {
        "queue": queue,
        "batch": batch_id,
        "messages": len(given),
        "ids": [message.msg_id for message in given[:_NAMED]],
    }


def _noted(given: Given, queue: str) -> _Note | None:
    """Return what an earlier start had prepared with this message."""
    note = script_files.read_json(given.folder, f"{JOB}/{NOTE}")
    if note is None:
        return None  # none, or torn: then nothing was decided
    sent = [Prepared(*entry) for entry in note.get("sent", [])]
    is_old = time.time() - float(note.get("time", 0)) > REMEMBERED
    noted = _Note(sent, str(note.get("wrote", "")), is_old)
    # What was decided is finished, and not made again, however long that is ago.
    if is_old and not (noted.wrote and writes.is_decided(queue, noted.wrote)):
        return None
    return noted
