"""Of bugs that are planted by chance nine of ten are noticed, in each room.

`RQ_MUTANTS=40 RQ_TEST_SEED=3 ./test/run_tests.sh mutants`: so many, others by another seed;
`RQ_MUTANTS_IN=broker` in one room alone; `RQ_MUTANTS_AT="rq/spool/check.py:259 ..."`: those
at some places, which were alive before.
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue

import pytest
from faults.mutants.chance import ROOMS, Judge, drawn, named, of_room, places
from faults.mutants.passing import coming_by
from faults.mutants.plant import copied_tree
from faults.mutants.waiting import Waiting
from harness.extent import SEED

NUMBER = int(os.environ.get("RQ_MUTANTS", "200"))
CHOSEN = os.environ.get("RQ_MUTANTS_IN", "").split() or ROOMS
AT = os.environ.get("RQ_MUTANTS_AT", "").split()
AT_ONCE = 2


@pytest.mark.mutants
def test_most_bugs_are_noticed(capsys):
    bugs = named(AT) or drawn(NUMBER, SEED, tuple(CHOSEN))
    judges = SimpleQueue()

    def judged(bug):
        judge = judges.get()
        try:
            by = judge.noticed_by(bug)
        finally:
            judges.put(judge)
        with capsys.disabled():
            print(f"{'noticed' if by else 'ALIVE  '} {bug}  {by or ''}", flush=True)  # noqa: T201
        return bug, by

    with ExitStack() as stack:
        trees = [stack.enter_context(copied_tree()) for _ in range(AT_ONCE)]
        waiting = [stack.enter_context(closing(Waiting(tree))) for tree in trees]
        by_place = waiting[0].coming_by(places(bugs))
        files = {file for bug in bugs for file in of_room(bug.room)}
        processes = coming_by(trees[0], sorted(files), places(bugs))
        for tree, tests in zip(trees, waiting, strict=True):
            judges.put(Judge(tree, tests, by_place, processes))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            verdicts = list(pool.map(judged, bugs))
    noticed = Counter(bug.room for bug, by in verdicts if by)
    drawn_in = Counter(bug.room for bug in bugs)
    alive = [str(bug) for bug, by in verdicts if not by]
    shares = {room: f"{noticed[room]} of {drawn_in[room]}" for room in drawn_in}
    with capsys.disabled():
        print(f"\nnoticed: {shares}")  # noqa: T201
    assert len(alive) <= len(bugs) / 10, alive
