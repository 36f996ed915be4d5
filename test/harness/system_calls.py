"""What a process asks of the kernel: its system calls counted by strace, its wake-ups."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from harness.waiting import wait_until


def counted(pid: int, scratch: Path, act: Callable[[], object]) -> Counter[str]:
    """Return the system calls that the main thread of a process makes while `act` runs.

    Its other threads, and what its children do before they become another program, are
    not counted.
    """
    if shutil.which("strace") is None:
        pytest.skip("system calls are counted by strace -> apt-get install strace")
    recorded = scratch / f"strace.{pid}"
    words = ("strace", "-qq", "-e", "signal=none", "-o", str(recorded), "-p", str(pid))
    tracer = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        _attached(tracer, pid)
        act()
    finally:
        tracer.send_signal(signal.SIGINT)  # it lets go of the process, and ends
        tracer.communicate(timeout=60)
    return Counter(
        re.findall(r"^(\w+)\(", recorded.read_text(errors="replace"), re.MULTILINE)
    )


def _attached(tracer: subprocess.Popen[str], pid: int) -> None:
    """Wait until it traces the process; where no process may, there is nothing to test."""
    status = Path(f"/proc/{pid}/status")
    wait_until(
        lambda: (
            tracer.poll() is not None
            or f"TracerPid:\t{tracer.pid}\n" in status.read_text()
        )
    )
    if tracer.poll() is not None:
        pytest.skip(f"strace may not trace here: {tracer.communicate()[1]}")


def wakeups_a_minute(pids: Iterable[int], seconds: float) -> float:
    """Return how often all threads of processes that have nothing to do begin to run."""
    pids = list(pids)
    begun, before = time.monotonic(), sum(map(_waits, pids))
    wait_until(lambda: time.monotonic() - begun > seconds, 2 * seconds)
    return (sum(map(_waits, pids)) - before) * 60 / (time.monotonic() - begun)


def _waits(pid: int) -> int:
    """Return how often threads of a process have gone to sleep of their own will."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    told = "".join(task.read_text() for task in tasks)
    return sum(
        map(int, re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", told, re.MULTILINE))
    )
