"""Asks the owners of predecessors how they stand, and decides the messages that wait.

What it hears becomes `told` lines, then the rule (`schedule.predecessors`) is brought up to
date; what is decided becomes one line each, in slices of the turns. So whatever is killed,
and wherever, the next start knows what was heard and asks for the rest.

An owner that does not answer has said nothing: it is asked again, and the message waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from rq.errors import BadMessage, NoSuchMessage, RQError
from rq.logs import fields
from rq.message.after import Standing, queue_of
from rq.proc.slices import Slice
from rq.queues.asking import decisions, questions
from rq.queues.concurrency import Tasks
from rq.queues.owner.owner import Owner
from rq.rpc import loop_client
from rq.spool import lost_attempts

_HINTED = 1000  # messages in a hint

log = logging.getLogger(__name__)


class Asker:
    """Asks for one queue."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._tasks = Tasks(owner.loop)
        self._hinting: set[str] = set()  # queues to which a hint is on its way

    @property
    def is_busy(self) -> bool:
        """Whether an answer, or a hint, is on its way."""
        return bool(self._tasks or self._hinting)

    # ---- turns

    def turn(self, seconds: Callable[[], float]) -> float | None:
        """Ask what is to be asked now, and decide some messages; return when to look
        again."""
        waits = self._owner.backlog.predecessors
        if not waits or self._owner.admission.stopping:
            return None
        now = self._owner.spool.clock()
        for queue in waits.rounds.due(now):
            places = waits.rounds.of(queue).take(now)
            self._tasks.spawn(self._ask(queue, places))
        if self._decide(seconds()):
            return now
        return waits.rounds.next_look()

    def _decide(self, seconds: float) -> bool:
        """Decide messages for some time; return whether more may be decided."""
        owner, turn = self._owner, Slice(seconds)
        waits = owner.backlog.predecessors
        while (decided := waits.next()) is not None:
            if owner.spool.group_full or turn.is_over:
                return True
            try:
                decisions.decide(owner, *decided)
            except (BadMessage, NoSuchMessage) as error:
                msg_id = decided[0]
                owner.backlog.remove(msg_id)
                lost_attempts.fail_malformed(owner.spool, msg_id, str(error))
        return False

    # ---- asking

    async def _ask(self, queue: str, places: Sequence[str]) -> None:
        owner = self._owner
        waits = owner.backlog.predecessors
        there = waits.rounds.of(queue)
        try:
            names = [waits.asked_as(place) for place in places]
            answers = await questions.standings(owner, queue, names)
        except (RQError, OSError) as error:
            log.info("predecessors: %s", fields(queue=queue, reason=error))
            there.failed(owner.spool.clock())
            owner.wake()
            return
        late = there.answered(owner.spool.clock())
        self.hear(map(_said_of, places, names, answers))
        for place in places:
            if place not in late:
                waits.confirm(place)
        owner.wake()

    def hear(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write down what was told of predecessors, where it is new."""
        owner = self._owner
        waits, standings = owner.backlog.predecessors, owner.spool.standings
        news = waits.news(rows)
        before = {place: standings.get(place) for place, _ in news}
        owner.spool.stand(news)
        now = owner.spool.clock()
        for place, was in before.items():
            waits.hear(place, was, now)

    # ---- hints

    def hinted(self, places: Iterable[str]) -> None:
        """Ask for some predecessors soon: a hint says that they have changed."""
        waits = self._owner.backlog.predecessors
        for place in places:
            waits.rounds.hurry(queue_of(place), waits.asked_by(place))
        self._owner.wake()

    def hint(self) -> None:
        """Tell those who asked that messages have changed; it is durable by now."""
        hints = self._owner.spool.events.hints
        if self._owner.name in hints:
            self.hinted(self._places(hints.pop(self._owner.name)))
        for queue in [queue for queue in hints if queue not in self._hinting]:
            self._hinting.add(queue)
            self._tasks.spawn(self._hint(queue))

    def _places(self, ids: Iterable[str]) -> list[str]:
        return [f"{self._owner.name}/{msg_id}" for msg_id in ids]

    async def _hint(self, queue: str) -> None:
        hints = self._owner.spool.events.hints
        socket = self._owner.root.queue(queue).socket
        try:
            while ids := list(hints.pop(queue, ())):
                for at in range(0, len(ids), _HINTED):
                    ends = self._places(ids[at : at + _HINTED])
                    await loop_client.ask(
                        socket, "wake", {"ends": ends}, questions.PATIENCE
                    )
        except (RQError, OSError) as error:
            log.info("a hint was lost: %s", fields(queue=queue, reason=error))
        finally:
            self._hinting.discard(queue)


def _said_of(place: str, name: str, said: str) -> tuple[str, str]:
    """Return what was said of a predecessor that was asked for by a name, with that name
    if it goes on under it."""
    if name == place or said.startswith(Standing.GOES_ON):
        return place, said
    return place, f"{said} {name}"
