"""Sends the messages of a flow, all of them or none.

F is the message of the queue `flow` whose script this is. Layer by layer each message is
sent to its queue, under a key made of F and its name, and with F itself among those that it
waits for. So

- an attempt that was cut off anywhere is made again, and each message is the one that was
  sent before: the owners know the keys;
- no message runs while F has not ended in done. F's own `finish` in its journal is the one
  decision for all of them, the first included;
- when F ends otherwise, whatever the reason, the owner of each message hears it where it
  asks how F stands, and discards the message, whose own rule is not asked.

That F will not be done is decided once, too: the reason is on disk before the first message
is discarded, and any later attempt finds it. What was discarded keeps its key, so a flow
that goes on after that would wait for messages that are no more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import orjson

from rq import names
from rq.builtin.flow import closing
from rq.builtin.flow.door import PATIENCE
from rq.builtin.flow.record import END, ENDED, QUEUE, Sent, by_queue, sent_in
from rq.errors import NoSuchQueue, RQError
from rq.files.durable import crash_point
from rq.flow.plan import Node, Plan
from rq.kinds import PASSING
from rq.layout import JOB, Root
from rq.message import fieldnames
from rq.rpc import client, wire
from rq.spool import script_files
from rq.words.nesting import Json

_MOST = 500  # messages of a request
_LARGEST = 1024 * 1024  # bytes of one


class Refused(Exception):
    """A message cannot be sent, however often it is tried: the flow is not begun."""


class Again(Exception):
    """A message cannot be sent now."""


@dataclass(slots=True, kw_only=True)
class Sending:
    """The messages of one flow, as they are sent."""

    root: Root
    msg_id: str  # of F
    folder: Path  # of F
    plan: Plan
    by: str  # who sends the flow; "": RQ itself
    sent: dict[str, str] = field(default_factory=dict)  # QUEUE/ID by name
    _lines: dict[str, client.Connection] = field(default_factory=dict)

    def run(self) -> None:
        """Send all messages. Refused: none will run, and it is known for good why; Again:
        what was sent waits for the next attempt."""
        if reason := self._decided():
            self._end(reason)
        try:
            with contextlib.closing(Sent(self.folder)) as file:
                for layer in self.plan.layers:
                    self._send_layer(layer, file)
                if self.plan.webhooks:
                    self._send_end(file)
            self._check_all_stand()
        except Again as error:
            if time.time() < names.created(self.msg_id) + PATIENCE:
                raise
            self._end(f"an hour has passed, and still: {error}")
        except Refused as error:
            self._end(str(error))
        finally:
            self.close()

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    # ---- sending

    def _send_layer(self, layer: Sequence[Node], file: Sent) -> None:
        by_queue: dict[str, list[Node]] = {}
        for node in layer:
            by_queue.setdefault(node.queue, []).append(node)
        for queue, nodes in by_queue.items():
            for part in _parts((node, self._request(node)) for node in nodes):
                crash_point("flow:before-send")
                file.add(self._send(queue, part))
                crash_point("flow:between-sends")

    def _send_end(self, file: Sent) -> None:
        """Send the message that tells the end of the flow; no node of it."""
        fields = closing.request(self.msg_id, self.plan, self.sent, self.by)
        try:
            url = client.demanded(self._line(QUEUE).ask("create_message", fields))
        except RQError as error:
            raise self._failure(f"the end of the flow: queue {QUEUE}", error) from None
        file.add([(END, f"{QUEUE}/{str(url).rpartition('/')[2]}")])

    def _request(self, node: Node) -> dict[str, Json]:
        """Return a message as it is sent: it waits for F, and for those before it."""
        after: list[Json] = [self.sent[name] for name in node.after]
        return {
            **node.message,
            "after": [f"{QUEUE}/{self.msg_id}", *after, *node.others],
            fieldnames.KEY: f"{fieldnames.FLOW_KEY}{self.msg_id}/{node.name}",
            fieldnames.BY: self.by,
        }

    def _send(
        self, queue: str, part: Sequence[tuple[Node, Mapping[str, Json]]]
    ) -> list[tuple[str, str]]:
        """Send some messages to a queue; return their names, and the QUEUE/ID of each."""
        request = {"messages": [fields for _, fields in part]}
        try:
            reply = client.demanded(self._line(queue).ask("create_messages", request))
        except RQError as error:
            what = f"{part[0][0].name}: queue {queue}"
            raise self._failure(what, error) from None
        rows: list[tuple[str, str]] = []
        for (node, _), row in zip(part, cast("list[list[Json]]", reply), strict=True):
            if (failure := wire.failure_in(row)) is not None:
                raise self._failure(f"{node.name}: queue {queue}", failure)
            rows.append((node.name, f"{queue}/{row[1]}"))
        self.sent.update(rows)
        return rows

    def _line(self, queue: str) -> client.Connection:
        if queue not in self._lines:
            there = self.root.queue(queue)
            if not there.config.is_file():
                raise NoSuchQueue("there is no such queue")
            self._lines[queue] = client.Connection(there.socket)
        return self._lines[queue]

    def _failure(self, what: str, error: RQError) -> Exception:
        passes = error.kind in PASSING
        return Again(f"{what}: {error}") if passes else Refused(f"{what}: {error}")

    def _check_all_stand(self) -> None:
        """Refused when a message was discarded since: it would be waited for in vain."""
        named = {target: name for name, target in self.sent.items()}
        for queue, msg_ids in by_queue(self.sent.values()).items():
            for at in range(0, len(msg_ids), _MOST):
                request = {"msg_ids": msg_ids[at : at + _MOST]}
                try:
                    states = client.demanded(
                        self._line(queue).ask("get_states", request)
                    )
                except RQError as error:
                    name = named[f"{queue}/{msg_ids[at]}"]
                    raise self._failure(f"{name}: queue {queue}", error) from None
                if gone := [each for each, state in states.items() if state == "gone"]:
                    place = f"{queue}/{gone[0]}"
                    said = f"{place} was deleted before all were sent"
                    raise Refused(f"{named[place]}: {said}")

    # ---- not sending

    def _decided(self) -> str:
        """Return why the flow is not begun, if that was decided before; else ""."""
        decision = script_files.read_json(self.folder, f"{JOB}/{ENDED}")
        return str(decision.get("why")) if decision else ""

    def _end(self, reason: str) -> None:
        """Discard what was sent, last in order first, once it is on disk why."""
        script_files.write_json(self.folder, f"{JOB}/{ENDED}", {"why": reason})
        crash_point("flow:refused")
        sent = {**sent_in(self.folder), **self.sent}
        who = f"flow {self.msg_id}"
        for target in reversed(
            [sent[n.name] for n in self.plan.nodes if n.name in sent]
        ):
            queue, _, msg_id = target.partition("/")
            # One whose owner does not answer now hears that F has failed.
            with contextlib.suppress(RQError):
                self._line(queue).ask("delete_message", {"msg_id": msg_id, "who": who})
        raise Refused(reason)


def _parts(
    rows: Iterator[tuple[Node, dict[str, Json]]],
) -> Iterator[list[tuple[Node, dict[str, Json]]]]:
    """Give messages in parts that an owner takes in one request."""
    part: list[tuple[Node, dict[str, Json]]] = []
    size = 0
    for node, fields in rows:
        length = len(orjson.dumps(fields))
        if part and (size + length > _LARGEST or len(part) >= _MOST):
            yield part
            part, size = [], 0
        part.append((node, fields))
        size += length
    if part:
        yield part
