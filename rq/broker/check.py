"""Is what lies in the directory of a node whole? Reads all of it, as a start does, and
changes nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

from rq.broker.node import Node
from rq.broker.place import Place, copied
from rq.broker.recovery import Recovery
from rq.errors import Damaged
from rq.journal import mark


def jobs_in(path: Path) -> int:
    """Return how many jobs, messages and events a directory holds that no process uses.
    Damaged: snapshot or journal are not whole, or lie where they were not written."""
    place = Place(path)
    if mark.is_elsewhere(place.journal_dir):
        raise Damaged(copied(place))
    node = Node("", Random())
    Recovery(place).read(node)
    number, _ = node.size
    return number
