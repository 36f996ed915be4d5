"""A job that hangs is seen: since when, which process, and how silent it is."""

import os

import pytest
from harness.cli import rq
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until

from rq.proc import processes

pytestmark = pytest.mark.process

SCRIPT = """#!/bin/sh
[ -z "$RQ_PARAM1" ] || echo "$RQ_PARAM1"
echo run half >&3
while [ ! -e "$RQ_PARAM2" ]; do sleep 0.1; done
echo done >&3
"""


def test_show_says_of_a_silent_script_how_long_and_which_process(tmp_path):
    gate = tmp_path / "gate"
    with kept(RunningQueue(tmp_path / "root", "t", SCRIPT, num_workers=2)) as queue:
        silent = queue.send(param2=str(gate))
        loud = queue.send(param1="hello", param2=str(gate))
        for msg_id in (silent, loud):
            wait_until(lambda m=msg_id: queue.get(m)["status"] == "run - half", 30)
        shown = rq("show", silent, root=queue.root.path).stdout
        pid = queue.get(silent)["result"]["pid"]
        for label, text in (("running for", "s"), ("last printed", "nothing yet"),
                            ("process", str(pid)), ("CPU time", "s")):  # fmt: skip
            (line,) = [
                row for row in shown.splitlines() if row.strip().startswith(label)
            ]
            assert text in line
        assert queue.get(loud)["result"]["printed"] == pytest.approx(
            queue.get(loud)["result"]["started"], abs=30
        )
        gate.touch()
        for msg_id in (silent, loud):
            queue.ended(msg_id)
        ended = queue.get(silent)["result"]
        assert "printed" not in ended
        shown = rq("show", silent, root=queue.root.path).stdout
        assert "running for" not in shown
        durations = queue.ok("detail")["durations"]
        assert durations["attempts"] == 2
        assert 0 < durations["p50"] <= durations["p95"]


def test_processor_time_is_that_of_a_process_and_its_children():
    before = processes.cpu_seconds(os.getpid())
    sum(number * number for number in range(3_000_000))
    assert processes.cpu_seconds(os.getpid()) > before
    assert processes.cpu_seconds(2**30) == 0.0


def test_how_long_attempts_ran_outlives_a_restart(tmp_path):
    with kept(
        RunningQueue(tmp_path / "root", "t", "#!/bin/sh\necho done >&3\n")
    ) as queue:
        queue.ended(queue.send())
        before = queue.ok("detail")["durations"]
        queue.close()
        queue.start()
        assert queue.ok("detail")["durations"] == before
