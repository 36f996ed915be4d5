"""Is what lies in the directory of a node whole? Reads all of it, as a start does, and
changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from rq.broker.desks.node import Node
from rq.broker.state.body import Place as BodyPlace
from rq.broker.state.lines import Event
from rq.broker.store.bodies import Bodies
from rq.broker.store.place import Place, copied
from rq.broker.store.recovery import Recovery
from rq.errors import Damaged
from rq.journal import mark


def jobs_in(path: Path) -> int:
    """Return how many jobs, messages and events a directory holds that no process uses.
    Damaged: snapshot, journal or a body are not whole, or lie where they were not
    written."""
    place = Place(path)
    if mark.is_elsewhere(place.journal_dir):
        raise Damaged(copied(place))
    node, bodies = Node("", Random()), Bodies(place.bodies)
    Recovery(place, bodies.place).read(node)
    _look_at_bodies(node, bodies)
    number, _ = node.size
    return number


def _look_at_bodies(node: Node, bodies: Bodies) -> None:
    """Damaged when a body that lies in a file is not there, or is not what was written."""
    reasons = [
        f"{reason}: the body of {_owner(event)}"
        for events in node.events_of_all()
        for event in events
        for body in _places(event)
        if (reason := _reason(bodies, body)) is not None
    ]
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if reasons[1:] else ""
        raise Damaged(
            f"{reasons[0]}{more}; put the file back from a backup, or delete what it "
            "belongs to: everything else is whole"
        )


def _places(event: Event) -> Iterator[BodyPlace]:
    for value in event:
        some = value if isinstance(value, list | tuple) else (value,)
        yield from (each for each in some if isinstance(each, BodyPlace))


def _reason(bodies: Bodies, body: BodyPlace) -> str | None:
    """Return why a body cannot be read; None when it can."""
    try:
        bodies.read(body)
    except OSError as error:
        return f"{bodies.path / body.file.name} cannot be read: {error.strerror}"
    except Damaged as error:
        return str(error)
    return None


def _owner(event: Event) -> str:
    """Return a job, or whatever else an event is of, in words."""
    fields = event._asdict()
    queue = bytes(fields.get("queue") or fields["key"]).decode(
        errors="backslashreplace"
    )
    job = fields.get("job")
    return f"{job} in the queue {queue}" if job else f"a message of the queue {queue}"
