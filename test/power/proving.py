"""Records a story, enumerates its power cuts, recovers each, and says what is broken."""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from power import recovering
from power.disk import Disk, Mark, Named, NotWhole
from power.recovering import Promises, Recovered
from power.states import Choice, Model, States, Tree, levels
from power.stories import FAULTS, SETTINGS
from power.trace import record

from rq.journal import history, mark
from rq.layout import QueueDir
from rq.spool import checkpoint

STORIES = Path(__file__).with_name("stories.py")
TRIES = 3
ENOUGH = 20  # broken promises tell enough
QUEUE_STORIES = Path(__file__).with_name("queue_stories.py")
MEMORY = Path("/dev/shm")  # syncs cost nothing there


@dataclass(slots=True)
class Proof:
    """What was enumerated, and what was found broken."""

    choices: int = 0
    states: int = 0
    broken: list[str] = field(default_factory=list)


def recorded(story: str, scratch: Path) -> Disk:
    """Run a story under strace and return what it did to the disk."""
    root = scratch / "root"
    (root / "queue" / "q").mkdir(parents=True)
    if story in SETTINGS:
        (root / "queue/q/config.json").write_text(json.dumps(SETTINGS[story]))
    disk = Disk(root)
    ran = record(STORIES, story, root, scratch=scratch, inject=FAULTS.get(story, ()))
    assert ran.status == 0, ran.output
    return disk.played(ran.calls)


def recorded_queues(story: str, scratch: Path) -> Disk:
    """The same for a story of real queue processes; the disk is what they work on."""
    return recorded_kills(QUEUE_STORIES, story, scratch=scratch, top="queue")


def recorded_kills(
    program: Path,
    *words: str,
    scratch: Path,
    top: str = "",
    besides: tuple[str, ...] = (),
) -> Disk:
    """Run a program whose processes are killed. What the kernel had begun to do for one
    of them it may end, and strace does not see it: then all is done anew."""
    for number in range(TRIES):
        place = scratch / f"{number}"
        root = place / "root"
        root.mkdir(parents=True)
        disk = Disk(root / top, besides)
        ran = record(program, *words, root, scratch=place, inject=("sync:retval=0",))
        assert ran.status == 0, ran.output
        try:
            return disk.played(ran.calls)
        except NotWhole as error:
            missed = error
    raise missed


@dataclass(frozen=True, slots=True)
class Way:
    """How the states of a recording lie, are recovered and looked at."""

    top: str = ""  # where in a root
    recover: Callable[[Path], Recovered] = recovering.recover
    spared: str = ""  # a machine under the top that keeps its power
    names: tuple[str, ...] = ()  # the queues, when there is not just one


ONE = Way()


def queues_of(disk: Disk) -> Way:
    """Return how to recover the queues that a recording of processes has made."""
    names = tuple(
        name for name, node in disk.root.entries.items() if node.kind == "dir"
    )
    recover = functools.partial(recovering.recover, names=names)
    return Way("queue", recover, names=names)


@contextmanager
def quick_place() -> Iterator[Path]:
    """Give a directory in memory, if there is one."""
    base = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rq-power-", dir=base) as place:
        yield Path(place)


def prove(
    disk: Disk,
    model: Model,
    near: int = 10,
    some: int = 4,
    seed: int = 1,
    way: Way = ONE,
    before: Promises | None = None,
) -> Proof:
    """Recover every state and judge it by what was promised when the power went."""
    proof = Proof()
    states = States(disk, model, seed, is_a_date, way.spared)
    promised = promises(disk, before)
    level = levels(disk)
    known: dict[bytes, Recovered] = {}
    judged: set[tuple[bytes, int]] = set()
    with quick_place() as place, recovering.power_is_back():
        for choice in states.choices(near, some):
            proof.choices += 1
            tree = states.tree(choice)
            print_ = tree.fingerprint()
            at = level[choice.after]
            if (print_, at) in judged:
                continue
            judged.add((print_, at))
            if print_ not in known:
                known[print_] = _recover(tree, place, way)
                proof.states += 1
            proof.broken += _judge(known[print_], promised[at], choice)
            if len(proof.broken) > ENOUGH:
                break
    return proof


def is_a_date(op: object) -> bool:
    """Whether a directory of done or relayed was made. Outside the promise: a disk that
    loses it, and keeps the later rename of a message into it."""
    return isinstance(op, Named) and op.node.kind == "dir" and op.name.isdecimal()


def promises(disk: Disk, before: Promises | None = None) -> list[Promises]:
    """Return what is promised after each mark."""
    found = [before or Promises()]
    for op in disk.ops:
        if isinstance(op, Mark):
            found.append(found[-1].copy())
            found[-1].take(op.said)
    return found


def _recover(tree: Tree, place: Path, way: Way) -> Recovered:
    root = place / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    tree.make(root / way.top)
    return way.recover(root)


def _judge(found: Recovered, promised: Promises, choice: Choice) -> list[str]:
    where = f"after operation {choice.after}, {choice.about}: "
    troubles = [*found.troubles, *promised.broken(found)]
    return [where + one for one in troubles]


def is_here(queue: QueueDir) -> None:
    """Let a state that was laid out on a disk lie where its journal was written."""
    point = checkpoint.read(queue)
    journal = history.journal_of(
        queue.journal_dir, history.active_segments(queue.journal_dir)
    )
    journal = journal or (point.journal.position.journal if point else None)
    if journal is None or not mark.is_elsewhere(queue.journal_dir):
        return
    fd = os.open(queue.path, os.O_RDONLY)
    try:
        mark.accept(queue.journal_dir, fd, journal, copy=False)
    finally:
        os.close(fd)
