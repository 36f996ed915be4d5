"""Send the results of a job once, whatever is killed on the way.

1. Each message is prepared at its queue under a key, and its attachments with it.
2. What was prepared is written, durably, beside every message that is in the result.
3. The messages are committed in order; the first one decides.

A later start that finds such a note asks whether the first was committed. If it was, the
others are committed too and the messages have been dealt with; if not, nothing was sent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rq import client, lineage, names
from rq.errors import BadInput
from rq.layout import JOB, Root
from rq.nesting import Json
from rq.spark.given import Batch, Given
from rq.spool import script_files

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


class Sender:
    """Sends for the messages of one queue."""

    def __init__(self, root: Root, queue: str) -> None:
        self._root = root
        self._queue = queue

    def prepare(
        self, letters: Sequence[Letter], given: Sequence[Given], batch_id: str
    ) -> list[Prepared]:
        """Prepare all letters, and note them beside each message; each letter says of
        which messages it was made."""
        if not letters:
            return []
        # Of this start alone: a message that an earlier one has prepared may say
        # something else.
        origin: dict[str, Json] = {
            "queue": self._queue,
            "batch": batch_id,
            "messages": len(given),
            "ids": [message.msg_id for message in given[:_NAMED]],
        }
        base = f"spark/{self._queue}/{secrets.token_hex(16)}"
        prepared = [
            self._prepare(letter, f"{base}/{n}", origin)
            for n, letter in enumerate(letters)
        ]
        note = {
            "time": time.time(),
            "sent": [[entry.queue, entry.msg_id, entry.key] for entry in prepared],
        }
        for message in given:
            message.job.mkdir(exist_ok=True)
            script_files.write_json(message.folder, f"{JOB}/{NOTE}", note)
        return prepared

    def commit(self, prepared: Iterable[Prepared]) -> None:
        """Let prepared messages be accepted; harmless when they have been."""
        for entry in prepared:
            request = {"msg_id": entry.msg_id, "_key": entry.key}
            self._ask(entry.queue, "commit_message", request)

    def sent_before(self, batch: Batch) -> dict[str, list[Prepared]]:
        """Return the messages that an earlier start has dealt with, and what it sent.

        Ensures that all of that is accepted.
        """
        settled: dict[str, list[Prepared]] = {}  # by the key of the first
        sent = {}
        for message in batch.messages:
            noted = _noted(message)
            if not noted:
                continue
            first = noted[0].key
            if first not in settled:
                settled[first] = self._settled(noted)
            if settled[first]:
                sent[message.msg_id] = settled[first]
        return sent

    def _prepare(self, letter: Letter, key: str, origin: Json) -> Prepared:
        fields = {"dest": letter.dest, **letter.fields, ORIGIN: origin, "_key": key}
        full, _state = self._begin(letter.queue, fields)
        for path in letter.files:
            request = {
                "msg_id": full,
                "pathname": str(path.absolute()),
                "name": path.name,
            }
            self._ask(letter.queue, "attach_message", request)
        return Prepared(letter.queue, full, key)

    def _settled(self, noted: list[Prepared]) -> list[Prepared]:
        """Return what was sent, all of it now; nothing if the first was not."""
        first = noted[0]
        fields = {"dest": first.queue, "_key": first.key}
        if self._begin(first.queue, fields)[1] != "prep":
            self.commit(noted)
            return noted
        for entry in noted:
            self._reply(entry.queue, "delete_message", {"msg_id": entry.msg_id})
        return []

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


def _noted(given: Given) -> list[Prepared]:
    """Return what an earlier start had prepared with this message."""
    note = script_files.read_json(given.folder, f"{JOB}/{NOTE}")
    if note is None:
        return []  # none, or torn: then nothing was committed
    if time.time() - float(note.get("time", 0)) > REMEMBERED:
        return []
    return [Prepared(*entry) for entry in note.get("sent", [])]
