"""Nodes of a broker in a world of chance: no job is lost, none comes too often, and all that
is acknowledged goes. Each seed is a run that can be had again.

    RQ_SIM_SEEDS=100000 ./test/run_tests.sh sim

plays so many, and RQ_SIM_FROM=N begins with that one. A run that breaks a promise is shown
with the steps that are needed for it.
"""

import os
import sys

import pytest
from harness.simulation.runs import run

SEEDS = int(os.environ.get("RQ_SIM_SEEDS", "800"))
FROM = int(os.environ.get("RQ_SIM_FROM", "0"))
_SHARES = 8  # of the seeds, each a test


@pytest.mark.parametrize("share", range(_SHARES))
def test_promises_hold(share, capsys):
    seeds = range(FROM + share, FROM + SEEDS, _SHARES)
    steps = sum(run(seed).steps for seed in seeds)
    with capsys.disabled():
        sys.stderr.write(f" {len(seeds)} seeds, {steps} steps of nodes\n")


def test_a_seed_gives_the_same_run_again():
    first, again = run(5), run(5)
    assert (first.steps, first.letters) == (again.steps, again.letters)
    assert first.ledger.delivered == again.ledger.delivered
