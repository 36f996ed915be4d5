"""The benchmark of the broker: that it runs, and gives every figure that has a goal."""

import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.starting import environment

pytestmark = pytest.mark.process


def test_the_benchmark_of_the_broker_gives_all_figures_with_a_goal(tmp_path):
    bench = CHECKOUT / "test" / "bench"
    words = ("--quick", "--disk", "disk", "--only", "broker")
    run = subprocess.run(
        [sys.executable, bench / "broker.py", *words],
        env=environment({"PYTHONPATH": str(CHECKOUT), "RQ_BENCH_DIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(" goal ") == 7, run.stdout


def test_the_benchmark_of_three_nodes_gives_all_figures_with_a_goal(tmp_path):
    bench = CHECKOUT / "test" / "bench"
    words = ("--quick", "--disk", "disk", "--jobs", "1000")
    run = subprocess.run(
        [sys.executable, bench / "broker_cluster.py", *words],
        env=environment({"PYTHONPATH": str(CHECKOUT), "RQ_BENCH_DIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(" goal ") == 5, run.stdout
