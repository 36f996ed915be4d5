"""Of bugs that are planted by chance nine of ten are noticed, in each room.

`RQ_MUTANTS=40 RQ_TEST_SEED=3 ./test/run_tests.sh mutants`: so many, others by another seed;
`RQ_MUTANTS_IN=broker` in one room alone.
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from faults.mutants.chance import ROOMS, drawn, noticed_by
from faults.mutants.plant import copied_tree
from harness.extent import SEED

NUMBER = int(os.environ.get("RQ_MUTANTS", "200"))
CHOSEN = os.environ.get("RQ_MUTANTS_IN", "").split() or ROOMS
AT_ONCE = 2


@pytest.mark.mutants
def test_most_bugs_are_noticed(capsys):
    bugs = drawn(NUMBER, SEED, tuple(CHOSEN))
    with copied_tree() as first, copied_tree() as second:
        trees = SimpleQueue()
        for tree in (first, second):
            trees.put(tree)

        def judged(bug):
            tree = trees.get()
            try:
                by = noticed_by(bug, tree)
            finally:
                trees.put(tree)
            with capsys.disabled():
                print(f"{'noticed' if by else 'ALIVE  '} {bug}  {by or ''}", flush=True)  # noqa: T201
            return bug, by

        with ThreadPoolExecutor(AT_ONCE) as pool:
            verdicts = list(pool.map(judged, bugs))
    room_of = {bug: bug.file.split("/")[1] for bug, _ in verdicts}
    noticed = Counter(room_of[bug] for bug, by in verdicts if by)
    drawn_in = Counter(room_of.values())
    alive = [str(bug) for bug, by in verdicts if not by]
    shares = {room: f"{noticed[room]} of {drawn_in[room]}" for room in drawn_in}
    with capsys.disabled():
        print(f"\nnoticed: {shares}")  # noqa: T201
    assert len(alive) <= NUMBER / 10, alive
