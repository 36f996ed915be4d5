"""Whether messages may name the predecessors that they name: asked before they are accepted.

A sender learns nothing from a refusal: an id that does not exist, of another root, or of a
message that they may not read is refused by one and the same sentence. An owner that does
not answer has not said no: the sender hears `busy` and sends again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rq.access.sockets import Asker
from rq.errors import BadMessage, Busy, RQError
from rq.message import fieldnames
from rq.message.after import Standing, is_gate, not_there, queue_of, stored
from rq.outbound import peers
from rq.queues.asking import questions
from rq.queues.control.command import Request
from rq.queues.owner.owner import Owner
from rq.queues.schedule.rounds import AT_ONCE
from rq.spool import outbox
from rq.words.nesting import Json

FIELD = "after"
_GONE = frozenset({Standing.UNKNOWN, Standing.DELETED})
MOST_EDGES = 1_000_000  # pairs of a message and its predecessor in a queue

_QUIET = 4.0  # seconds in which folders in new/ do not ask again who has not answered

Answers = Mapping[str, str]  # by QUEUE/ID: how it stands


def are_handed_on(asker: Asker, fields: Request) -> bool:
    """Whether a message comes from another queue or host that had accepted it; then it
    names no predecessors, unless it has waited in a queue of this root."""
    text = fields.get(fieldnames.KEY)
    if not fieldnames.is_handed_on(fields, None if text is None else str(text)):
        return False
    if not (asker.is_own and outbox.IS_KEY.fullmatch(str(text))):
        for name in (FIELD, "after_rule", "after_fail"):
            fields.pop(name, None)
    return True


def write_as_kept(owner: Owner, fields: Request) -> None:
    """Write the names of predecessors as a message keeps them."""
    if fields.get(FIELD):
        is_here = functools.partial(peers.is_here, own=owner.main)
        fields[FIELD] = list(stored(fields[FIELD], owner.name, is_here))


async def answers(owner: Owner, wanted: Sequence[Json]) -> Answers:
    """Return how the predecessors stand that some messages name, and write these names as
    they are kept. Busy: an owner does not say."""
    by_queue: dict[str, dict[str, None]] = {}
    number = 0
    for fields in wanted:
        places = _named_by(owner, fields)
        number += len(places)
        for place in places:
            by_queue.setdefault(queue_of(place), {})[place] = None
    _check_room(owner, number)
    said: dict[str, str] = {}
    for queue, of_queue in by_queue.items():
        said.update(await _of_queue(owner, queue, list(of_queue)))
    return said


def _named_by(owner: Owner, fields: Json) -> Sequence[str]:
    """Return what a message names; nothing if that makes no sense: `check` says so."""
    if not isinstance(fields, dict) or not fields.get(FIELD):
        return ()
    try:
        write_as_kept(owner, fields)
        return stored(fields[FIELD])
    except BadMessage:
        return ()


def _check_room(owner: Owner, number: int) -> None:
    edges = owner.backlog.predecessors.edges
    if edges + number > MOST_EDGES:
        raise Busy(
            f"not accepted: messages of this queue wait for {edges:,} others, and at most "
            f"{MOST_EDGES:,} can be: send it when some have ended"
        )


async def _of_queue(owner: Owner, queue: str, places: Sequence[str]) -> Answers:
    if not owner.root.queue(queue).path.is_dir():
        return {}
    said: dict[str, str] = {}
    for at in range(0, len(places), AT_ONCE):
        some = places[at : at + AT_ONCE]
        try:
            heard = await questions.standings(owner, queue, some)
        except RQError as error:
            raise Busy(
                f"not accepted: queue {queue} does not say how the messages stand that "
                f"it is to wait for ({error}): send it again"
            ) from None
        said.update(zip(some, heard, strict=True))
    return said


def _has_key_of_flow(fields: Request) -> bool:
    key = str(fields.get(fieldnames.KEY))
    return fieldnames.KEY_OF not in fields and key.startswith(fieldnames.FLOW_KEY)


def check(fields: Request, said: Answers, asker: Asker | None = None) -> None:
    """BadMessage when a message names one that is not there, or that its sender may not
    read; or a flow, which only its own messages wait for."""
    of_flow = asker is not None and asker.is_own and _has_key_of_flow(fields)
    for place in stored(fields.get(FIELD) or ()):
        if is_gate(place) and not of_flow:
            raise BadMessage(
                f"after: {place} sends a flow, and has ended once all of it is sent: name "
                "the messages of the flow that are to end first"
            )
        if said.get(place, Standing.UNKNOWN) in _GONE:
            raise not_there(place)


# ---- at the door new/


class AtDoor:
    """Asks for what folders in new/ name, one after the other: one may name another that
    lies there, too, and comes in before it."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._quiet: dict[str, float] = {}  # queue: until when it is not asked

    async def check(self, fields: Request) -> None:
        """BadMessage as `check`, of a folder that goes to err; Busy of one that stays in
        new/ and is looked at again."""
        queues = {queue_of(place) for place in _named_by(self._owner, fields)}
        now = time.monotonic()
        if any(now < self._quiet.get(queue, 0.0) for queue in queues):
            raise Busy("a queue does not say how the messages stand that it waits for")
        try:
            said = await answers(self._owner, [fields])
        except Busy:
            until = time.monotonic() + _QUIET
            self._quiet.update(dict.fromkeys(queues, until))
            raise
        gone = [place for place in said if said[place] in _GONE]
        run, pool = self._owner.loop.run_in_executor, self._owner.pools.looks
        if gone and (coming := await run(pool, self._coming, gone)):
            raise Busy(f"it is to wait for {coming}, which lies in new/ itself")
        # What was taken from new/ between the answer and that look is known by now.
        check(fields, await answers(self._owner, [fields]) if gone else said)

    def _coming(self, places: Iterable[str]) -> str | None:
        """Return a message that its own queue has still to take from new/. Blocks."""
        return next((place for place in places if self._at_door(place).exists()), None)

    def _at_door(self, place: str) -> Path:
        queue, _, msg_id = place.partition("/")
        return self._owner.root.queue(queue).path / "new" / msg_id
