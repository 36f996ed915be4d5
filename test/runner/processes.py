"""Run one command to its end, its limit, or an interrupt, and leave no process behind."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# What tests themselves are told: how long, how many, which random ones.
KNOBS = {"RQ_SOAK_SECONDS", "RQ_FUZZ_EXAMPLES", "RQ_FAULTS_EVERY", "RQ_TEST_SEED"}
KNOBS |= {"RQ_TEST_COMMIT"}  # only half of the enumerated cases, in CI
KNOBS |= {"RQ_SIM_SEEDS", "RQ_SIM_FROM", "RQ_POWER_FIRST"}
KNOBS |= {"RQ_MUTANTS", "RQ_MUTANTS_AT", "RQ_MUTANTS_BY", "RQ_MUTANTS_IN"}
KNOBS |= {"RQ_MUTANTS_KEPT", "RQ_TALKS"}


def call(command: list[str | Path], limit: float, scratch: Path) -> str | None:
    """Run `command` in the checkout; return what is wrong, or None."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if name[:3] != "RQ_" or name in KNOBS
    }
    # A test that forgets to name its root must not find the checkout's running RQ.
    env = kept | {"RQ_ROOT": str(scratch / "no-root-was-named")}
    # A process group of its own: at the limit all of it is ended.
    child = subprocess.Popen(
        command, cwd=CHECKOUT, env=env, stdin=subprocess.DEVNULL, process_group=0
    )
    child.returncode = wait_for(child.pid, limit)
    left = end_leftovers()
    if child.returncode == -signal.SIGALRM:
        return f"stopped after {limit:.0f} s"
    if left:
        return f"left processes behind: {', '.join(left)}"
    return None if child.returncode == 0 else f"exit status {child.returncode}"


def wait_for(pid: int, limit: float) -> int:
    """Return the exit status of `pid`, -SIGALRM if it was ended at `limit`.

    Orphans of the tests are reaped on the way, at once: a test that waits for a process
    to be gone must not wait for a zombie.
    """
    late = False

    def end(_signal: int, _frame: object) -> None:
        nonlocal late
        late = True
        os.killpg(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        while (ended := os.waitpid(-1, 0))[0] != pid:
            pass
    except KeyboardInterrupt:
        os.killpg(pid, signal.SIGKILL)
        end_leftovers(grace=0.0)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return -signal.SIGALRM if late else os.waitstatus_to_exitcode(ended[1])


def take_signals() -> None:
    """Begin with the signals that a terminal gives, and end by TERM and HUP as by Ctrl-C.

    A runner that was started in the background of a shell, or by some CI, inherits that
    INT and QUIT are ignored, and so would every test of Ctrl-C. What it handles itself
    has its default again in its children.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    for number in _ENDING:
        signal.signal(number, _end)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _frame: object) -> None:
    for (
        each
    ) in _ENDING:  # a second one would interrupt the end of what the tests started
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def become_subreaper() -> None:
    """Inherit what the tests orphan, so that it can be named and ended."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def end_leftovers(grace: float = 2.0) -> list[str]:
    """End what is still running after `grace`; return what it was."""
    deadline = time.monotonic() + grace
    while (pids := orphans()) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [described(pid) for pid in pids]
    while pids := orphans():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return left


def orphans() -> list[int]:
    """Reap what has ended and return the children that have not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return []
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]


def described(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return str(pid)
    return f"{pid} ({os.fsdecode(words).strip()[:60]})"
