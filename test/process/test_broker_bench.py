"""The benchmark of the broker: that it runs, and gives every figure that has a goal."""

import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.starting import environment

pytestmark = pytest.mark.process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "words", "goals"),
    [
        ("broker.py", ("--only", "broker"), 7),
        ("broker_cluster.py", ("--jobs", "1000"), 5),
    ],
)
def test_a_benchmark_gives_all_figures_with_a_goal(tmp_path, program, words, goals):
    bench = CHECKOUT / "test" / "bench" / program
    run = subprocess.run(
        [sys.executable, bench, "--quick", "--disk", "disk", *words],
        env=environment({"PYTHONPATH": str(CHECKOUT), "RQ_BENCH_DIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(" goal ") == goals, run.stdout
