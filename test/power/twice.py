"""Power cuts while a machine recovers from one: starts are recorded, and cut again."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from power.disk import Disk
from power.proving import ONE, Proof, Way, is_a_date, promises, prove, quick_place
from power.recovering import Promises
from power.states import Model, States, levels
from power.trace import record

STARTING = Path(__file__).with_name("starting.py")
FIRST = int(os.environ.get("RQ_POWER_FIRST", "1"))  # starts of a story; 0: all
AT_ONCE = 16  # starts in one recording


def prove_twice(
    disk: Disk,
    model: Model,
    first: int,
    near: int = 1,
    some: int = 0,
    seed: int = 1,
    way: Way = ONE,
) -> Proof:
    """Start over `first` of the states that a cut may leave (0: all), and cut that."""
    proof = Proof()
    wanted = _chosen(disk, model, first, seed)
    while wanted and not proof.broken:
        now, wanted = wanted[:AT_ONCE], wanted[AT_ONCE:]
        with _starts(disk, model, now, seed, way) as starts:
            for start, about, before in starts:
                found = prove(start, model, near, some, seed, way, before)
                proof.choices += found.choices
                proof.states += found.states
                proof.broken += [f"{about}; then {one}" for one in found.broken]
    return proof


def _chosen(disk: Disk, model: Model, first: int, seed: int) -> list[int]:
    """Return the numbers of the choices after which to start."""
    count = sum(1 for _ in States(disk, model, seed, is_a_date).choices(3, 1))
    if not first or first >= count:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), first))


@contextmanager
def _starts(
    disk: Disk, model: Model, wanted: list[int], seed: int, way: Way
) -> Iterator[list[tuple[Disk, str, Promises]]]:
    """Give what starts did to some states, and what had been promised before."""
    states, level, promised = (
        States(disk, model, seed, is_a_date),
        levels(disk),
        promises(disk),
    )
    starts = []
    with quick_place() as place:
        for number, choice in enumerate(states.choices(3, 1)):
            if number in wanted:
                root = place / f"{number}"
                root.mkdir()
                states.tree(choice).make(root / way.top)
                about = f"after operation {choice.after}, {choice.about}"
                before = promised[level[choice.after]]
                starts.append((Disk(root / way.top), about, before))
        roots = [place / f"{number}" for number in wanted]
        ran = record(STARTING, ",".join(way.names), *roots, scratch=place)
        assert ran.status == 0, ran.output
        for start, _, _ in starts:
            start.played(ran.calls)
        yield starts
