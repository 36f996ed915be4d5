"""Of bugs that are planted by chance nine of ten are noticed, in each room.

`RQ_MUTANTS=40 RQ_TEST_SEED=3 ./test/run_tests.sh mutants`: so many, others by another seed;
`RQ_MUTANTS_IN=broker` in one room alone; `RQ_MUTANTS_AT="rq/spool/check.py:259 ..."`: those
at some places, which were alive before; `RQ_MUTANTS_BY="test_broker*.py"`: of the tests with
processes these alone, all of which take ten minutes to say by which places they come (`-`:
none); `RQ_MUTANTS_KEPT=FOLDER`: what they say is kept there, for the next run.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
from faults.mutants.chance import (
    QUICK,
    ROOMS,
    SLOW,
    WITH_PROCESSES,
    Chance,
    Judge,
    by_place,
    drawn,
    files,
    named,
    places,
)
from faults.mutants.kept import Kept
from faults.mutants.passing import coming_by
from faults.mutants.plant import copied_tree
from faults.mutants.waiting import PARTS, Waiting
from harness.extent import SEED

NUMBER = int(os.environ.get("RQ_MUTANTS", "200"))
CHOSEN = tuple(os.environ.get("RQ_MUTANTS_IN", "").split()) or ROOMS
AT = os.environ.get("RQ_MUTANTS_AT", "").split()
BY = os.environ.get("RQ_MUTANTS_BY", "test_*.py")
KEPT = os.environ.get("RQ_MUTANTS_KEPT")
AT_ONCE = 2

Look = Callable[[Judge, Chance], str | None]
Verdicts = dict[Chance, str | None]  # the test that has noticed a bug


@pytest.mark.mutants
def test_most_bugs_are_noticed(capsys, tmp_path):
    kept = Kept(Path(KEPT or tmp_path))
    at = places()
    bugs = named(AT) or drawn(NUMBER, SEED, CHOSEN)
    with ExitStack() as stack:
        trees = [stack.enter_context(copied_tree()) for _ in range(AT_ONCE)]
        verdicts: Verdicts = {}
        with _waiting(trees) as waiting:
            said = kept.said(files(PARTS), lambda some: waiting[0].coming_by(some, at))
            quick = by_place(said, QUICK)
            judges = [Judge(*each) for each in zip(trees, waiting, strict=True)]
            for bug, by in _looked(judges, bugs, lambda j, b: j.quickly(b, quick)):
                verdicts[bug] = by
                _say(capsys, bug, by, "noticed" if by else "so far ")
        left = [bug for bug, by in verdicts.items() if by is None]
        said = kept.said(
            files(WITH_PROCESSES, BY) if left else [],
            lambda some: coming_by(trees[0], some, at),
        )
        slow = by_place(said, SLOW)
        for bug, by in _looked(judges, left, lambda j, b: j.with_processes(b, slow)):
            verdicts[bug] = by
            _say(capsys, bug, by, "noticed" if by else "ALIVE  ")
    _check(capsys, verdicts)


@contextmanager
def _waiting(trees) -> Iterator[list[Waiting]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Waiting(tree))) for tree in trees]


def _looked(
    judges: list[Judge], bugs: list[Chance], look: Look
) -> Iterator[tuple[Chance, str | None]]:
    """Give bugs and by what each is noticed, as soon as that is so."""
    free: SimpleQueue[Judge] = SimpleQueue()
    for judge in judges:
        free.put(judge)

    def judged(bug: Chance) -> tuple[Chance, str | None]:
        judge = free.get()
        try:
            return bug, look(judge, bug)
        finally:
            free.put(judge)

    with ThreadPoolExecutor(len(judges)) as pool:
        yield from pool.map(judged, bugs)


def _say(capsys, bug: Chance, by: str | None, word: str) -> None:
    with capsys.disabled():
        print(f"{word} {bug}  {by or ''}", flush=True)  # noqa: T201


def _check(capsys, verdicts: Verdicts) -> None:
    noticed = Counter(bug.room for bug, by in verdicts.items() if by)
    drawn_in = Counter(bug.room for bug in verdicts)
    shares = {room: f"{noticed[room]} of {drawn_in[room]}" for room in drawn_in}
    with capsys.disabled():
        print(f"\nnoticed: {shares}")  # noqa: T201
    alive = [str(bug) for bug, by in verdicts.items() if not by]
    assert len(alive) <= len(verdicts) / 10, alive
