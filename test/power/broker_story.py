"""The stories of a broker whose power may go; run under strace, or read by who judges.

Commands go to a node and its store as the server gives them: what is answered after a
sync is promised from the sync on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from harness.broker_store import HOUR, KeptNode
from power.recovering import Recovered
from power.tale import BEFORE, NOWHERE, Seen, in_small, mark, take_marks

from rq.broker.desks.group_desk import Getting
from rq.broker.state.bounds import Room
from rq.broker.state.groups import Came, EventQueue
from rq.broker.state.jobs import Job, State
from rq.broker.state.reliable import Acked
from rq.broker.store import bodies as files
from rq.broker.store import place as place_of_node
from rq.broker.store.place import Place
from rq.errors import RQError
from rq.journal import mark as journal_mark

QUEUED, GIVEN, GONE = "queued", "given", NOWHERE
LARGE = b"l" * 9000  # with a few of these a segment is full
HUGE = b"h" * 12_000  # it gets a file of its own
MOVED = files.SMALLEST  # bytes of one that goes to disk when memory is short
FILE = 10_000  # bytes from which on a body does


class Mark:
    """A broker, and what its clients may rely on."""

    def __init__(self, root: Path) -> None:
        self.kept = KeptNode(root / "broker")
        self.kept.open()
        self._may: dict[str, list[Seen]] = {}
        self._fresh: set[str] = set()

    @property
    def now(self) -> float:
        return self.kept.now

    def may(self, token: str, state: str, key: str = "") -> None:
        """Say what may be from now on."""
        may = self._may.setdefault(token, [Seen()])
        may.append(Seen(state, key=key))
        self._fresh.add(token)
        mark({"may": {token: [asdict(seen) for seen in may]}})

    def commit(self) -> None:
        """Make all durable; answers leave."""
        self.kept.commit()
        for token in self._fresh:
            self._may[token] = self._may[token][-1:]
        said = {token: [asdict(self._may[token][0])] for token in self._fresh}
        self._fresh.clear()
        mark({"may": said})

    # ---- Disque

    def add(self, *bodies: bytes, retry: float = 60.0) -> list[str]:
        for body in bodies:
            self.may(job_token(body), QUEUED, "0/0")
        return [self.kept.add(body, retry=retry) for body in bodies]

    def give(self) -> Job:
        """Hand out the first job."""
        node = self.kept.node
        queue = node.jobs.queue(b"q", self.now)
        job = queue.jobs[0]
        self.may(self.token(job), GIVEN, f"{job.nacks}/{job.deliveries}")
        assert node.desk.give(queue, 1, self.now) is job
        return job

    def token(self, job: Job) -> str:
        body = self.kept.store.bodies.read(job.body)
        assert isinstance(body, bytes)
        return job_token(body)

    def again(self, job: Job) -> None:
        """Let a job be queued again: nobody acknowledged it in time."""
        self.may(self.token(job), QUEUED, f"{job.nacks}/{job.deliveries + 1}")
        assert self.kept.node.desk.enqueue(job, self.now)

    def nack(self, job: Job) -> None:
        self.may(self.token(job), QUEUED, f"{job.nacks + 1}/{job.deliveries}")
        assert self.kept.node.desk.enqueue(job, self.now, nack=True)

    def ack(self, *jobs: Job) -> None:
        for job in jobs:
            self.may(self.token(job), GONE)
        self.kept.node.desk.remove([job.job_id for job in jobs], "acked", self.now)

    # ---- RedisRQ and bananaq

    def push(self, *bodies: bytes) -> list[str]:
        for body in bodies:
            self.may(message_token(body), QUEUED)
        wall = int(self.now * 1000)
        return self.kept.node.messages.push(b"k", bodies, self.now, wall)

    def pop(self, count: int) -> list[str]:
        some = self.kept.node.messages.pop(b"k", count, 0, Room(), self.now)
        for _, body in some:
            self.may(message_token(body), GIVEN)
        return [msg_id for msg_id, _ in some]

    def event(self, contents: bytes) -> None:
        self.may(event_token(contents, b"new"), QUEUED)
        self.may(event_token(contents, b"g"), QUEUED)
        groups = self.kept.node.groups
        number = groups.next_number(int(self.now * 1e6))
        until = int((self.now + HOUR) * 1e6)
        self.kept.node.emit(Came(b"e", number, until, contents), self.now)

    def get(self) -> None:
        """Let the group `g` be done with the next event."""
        queue = self.kept.node.groups.by_name[b"e"]
        event = queue.next_for(b"g")
        assert event is not None
        self.may(event_token(event.contents, b"g"), GONE)
        self.kept.node.consumers.get(b"e", Getting(b"g", 0.0), 0, self.now)


def job_token(body: bytes) -> str:
    return f"job {body[:5].decode()}{body[-2:].decode()} of {len(body)}"


def message_token(body: bytes) -> str:
    return f"message {body[:20].decode()}"


def event_token(contents: bytes, group: bytes) -> str:
    return f"event {contents.decode()} for {group.decode()}"


# ---- the stories


def accepted(told: Mark) -> None:
    """Jobs, messages and events are taken alone and in groups."""
    told.add(b"a")
    told.commit()
    told.add(b"b", b"c")
    bodies = [b"m%d" % n for n in range(20)]
    mark({"together": {"push": {message_token(body): GONE for body in bodies}}})
    told.push(*bodies)
    told.event(b"e1")
    told.commit()
    told.add(LARGE)
    told.event(b"e2")
    told.commit()


def delivered(told: Mark) -> None:
    """Jobs come at least once, or at most once; what is done is gone."""
    told.add(b"a", b"b", b"c")
    told.commit()
    first, second = told.give(), told.give()
    told.kept.write()  # nobody is told that these are durable
    told.ack(first)
    told.nack(second)
    told.commit()
    told.add(b"once", retry=0.0)
    told.ack(told.give(), told.give())
    told.commit()
    once = told.give()
    told.commit()
    told.push(b"m1", b"m2")
    told.commit()
    ids = told.pop(1)
    told.event(b"e1")
    told.commit()
    told.may(message_token(b"m1"), GONE)
    told.kept.node.emit(Acked(b"k", ids), told.now)
    told.get()
    told.commit()
    assert once.body == b"once"


def doubled(told: Mark) -> None:
    """A job that nobody acknowledged comes again, to two who both say that it is done."""
    told.add(b"a", b"b")
    told.commit()
    first = told.give()
    told.kept.write()
    told.again(first)
    told.commit()
    second, other = told.give(), told.give()
    assert second is first
    told.kept.write()
    told.ack(second)
    told.kept.write()
    told.ack(first)  # it is gone: this says nothing
    told.again(other)
    told.commit()
    told.kept.again()
    told.ack(told.give())
    told.commit()
    told.add(b"c")
    told.commit()


def later(told: Mark) -> None:
    """`appendfsync everysec`, or `no`: answers leave when their lines are written, and
    are promises from the next sync on; a kill in between loses nothing."""
    told.add(b"a")
    told.kept.write()
    told.add(HUGE + b"1", b"c")
    told.push(b"m1", b"m2")
    told.kept.write()
    told.add(b"once", retry=0.0)
    told.ack(told.give(), told.give())  # the file of one of them may go, but not yet
    told.event(b"e1")
    told.kept.write()
    told.commit()
    told.ack(told.give())
    given = told.give()  # once: what is not synced may come again
    told.pop(1)
    told.kept.write()
    told.get()
    told.kept.write()
    told.kept.again()
    assert look(told.kept)[told.token(given)].state == GIVEN
    told.add(LARGE, HUGE + b"2")
    told.kept.write()
    told.commit()
    told.kept.snapshot()
    told.ack(told.give(), told.give())
    told.kept.write()
    told.add(b"last")
    told.kept.write()
    told.kept.again()
    told.commit()


def snapshots(told: Mark) -> None:
    """What lives goes into a snapshot, and the journal before it is removed."""
    told.add(b"a", b"b", LARGE)
    told.push(b"m1", b"m2")
    told.event(b"e1")
    told.commit()
    told.kept.snapshot()
    told.add(b"d")
    told.ack(told.give())
    told.commit()
    told.kept.snapshot()
    told.push(b"m3", b"m4")
    told.get()
    told.commit()
    told.kept.again()
    told.ack(told.give())
    told.commit()
    told.kept.snapshot()
    told.kept.stop()
    told.kept.open()
    told.add(b"last")
    told.commit()


def bodies(told: Mark) -> None:
    """Large bodies lie in files, which go with their jobs."""
    told.add(HUGE + b"1")
    told.commit()
    told.add(b"small", HUGE + b"2", HUGE + b"3")
    told.commit()
    told.ack(told.give())
    told.commit()
    told.kept.snapshot()
    told.ack(told.give(), told.give())
    told.commit()
    told.kept.again()
    told.add(HUGE + b"4")
    told.commit()


def moved(told: Mark) -> None:
    """Memory is short: bodies that are in lines go to files, and snapshots name these."""
    told.kept.node.memory.limit = 4 * MOVED
    told.add(*(b"m" * MOVED + b"%d" % n for n in range(3)))
    told.commit()
    told.add(*(b"m" * MOVED + b"%d" % n for n in range(3, 6)))
    told.commit()
    told.kept.move()
    told.ack(told.give())
    told.commit()
    told.kept.snapshot()
    told.add(b"m" * MOVED + b"6")
    told.ack(told.give(), told.give(), told.give())
    told.commit()
    told.kept.move()
    told.kept.snapshot()
    told.kept.again()
    told.ack(told.give(), told.give())
    told.commit()


def started(told: Mark) -> None:
    """It ends in every way, and starts over what was left."""
    told.add(b"a")
    told.commit()
    told.kept.again()
    told.add(*(LARGE + b"%d" % n for n in range(4)))
    told.commit()
    told.kept.again()
    told.add(b"c")
    told.kept.write()
    told.kept.again()
    told.add(b"d")
    told.commit()
    told.kept.stop()
    told.kept.open()
    told.add(b"e")
    told.commit()
    told.kept.stop()


STORIES: dict[str, Callable[[Mark], None]] = {
    story.__name__: story
    for story in (
        *(accepted, delivered, doubled, later),
        *(snapshots, bodies, moved, started),
    )
}


# ---- what is left of them


def recover(root: Path) -> Recovered:
    """Start a broker over a state, twice, and look what it holds."""
    files.LARGE = FILE
    found = Recovered()
    kept = KeptNode(root / "broker")
    try:
        is_here(kept.place)
        kept.open()
        found.seen = look(kept)
        kept.add(b"anew")
        kept.commit()
        kept.again()
        again = look(kept)
        if again.pop(job_token(b"anew"), None) is None:
            found.troubles.append("what was added after the power cut is lost")
        if again != found.seen:
            found.troubles.append(f"a second start differs: {again}")
        kept.snapshot()
        kept.again()
        again = look(kept)
        again.pop(job_token(b"anew"), None)
        if again != found.seen:
            found.troubles.append(f"after a snapshot it differs: {again}")
    except (RQError, OSError, ValueError, KeyError) as error:
        found.troubles.append(f"it does not start: {error!r}")
    finally:
        with suppress(RQError, OSError):
            kept.close()
    return found


def is_here(place: Place) -> None:
    """Let a state that was laid out on a disk lie where its journal was written."""
    if place.path.is_dir() and journal_mark.is_elsewhere(place.journal_dir):
        place_of_node.accept(place, copy=False)


def look(kept: KeptNode) -> dict[str, Seen]:
    """Return what a node holds."""
    seen = {}
    for job in kept.node.jobs.by_id.values():
        state = QUEUED if job.state is State.QUEUED else GIVEN
        counters = f"{job.nacks}/{job.deliveries}"
        body = kept.store.bodies.read(job.body)
        assert isinstance(body, bytes)
        seen[job_token(body)] = Seen(state, key=counters)
    for queue in kept.node.reliable.by_key.values():
        for body in queue.undelivered.values():
            seen[message_token(body)] = Seen(QUEUED)
        for delivered in queue.delivered.values():
            seen[message_token(delivered.body)] = Seen(GIVEN)
    for events in kept.node.groups.by_name.values():
        seen |= dict(_events(events))
    return seen


def _events(queue: EventQueue) -> Iterator[tuple[str, Seen]]:
    for event in queue.events.values():
        for name in (b"g", b"new"):
            pointer = queue.groups[name].pointer if name in queue.groups else 0
            if pointer < event.number:
                yield event_token(event.contents, name), Seen(QUEUED)


if __name__ == "__main__":
    take_marks()
    files.LARGE = FILE
    with in_small(BEFORE):
        told = Mark(Path(sys.argv[2]))
        STORIES[sys.argv[1]](told)
        told.kept.close()
