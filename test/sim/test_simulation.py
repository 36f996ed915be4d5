"""Nodes of a broker in a world of chance: no job is lost, none comes too often, and all that
is acknowledged goes. Each seed is a run that can be had again.

    RQ_SIM_SEEDS=100000 ./test/run_tests.sh sim

plays so many, and RQ_SIM_FROM=N begins with that one; else a share of 10,000 is played. A
run that breaks a promise is shown with the steps that are needed for it. What the seeds have
seen is told of each share.
"""

import gc
import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest
from harness import extent
from harness.simulation.runs import run

SEEDS = int(os.environ.get("RQ_SIM_SEEDS", "10000"))
FROM = int(os.environ.get("RQ_SIM_FROM", "0"))
_SHARES = 20  # of the seeds, each a test
_IS_CHOSEN = "RQ_SIM_SEEDS" in os.environ
PLAYED = extent.share(range(_SHARES), 1 if _IS_CHOSEN else 4, ci=1 if _IS_CHOSEN else 2)


@pytest.mark.parametrize("share", PLAYED)
def test_promises_hold(share, capsys):
    gc.collect()
    gc.freeze()  # else all that pytest has is looked at, again and again
    seeds, seen = range(FROM + share, FROM + SEEDS, _SHARES), Counter()
    for seed in seeds:
        seen.update(run(seed).figures())
    gc.unfreeze()
    with capsys.disabled():
        sys.stderr.write(f" {len(seeds)} seeds, of each: {_shown(seen, len(seeds))}\n")


def _shown(seen, seeds):
    return ", ".join(
        f"{number / seeds:.3g} {name}" for name, number in seen.most_common()
    )


def told_of(seeds):
    """Return what happened in runs, in short."""
    seen = [(seed, sorted(run(seed).ledger.delivered.items())) for seed in seeds]
    seen += [sorted(run(seed).figures().items()) for seed in seeds]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def test_a_seed_gives_the_same_run_again():
    """In another process, too, whose sets have another order."""
    text = "from test_simulation import told_of; print(told_of(range(40, 46)))"
    shown = [
        subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, "PYTHONHASHSEED": hashed, "PYTHONPATH": _path()},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hashed in ("1", "2")
    ]
    assert shown == [told_of(range(40, 46))] * 2


def _path():
    return os.pathsep.join([os.path.dirname(__file__), *sys.path])
