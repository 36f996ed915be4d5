"""`rq-mgr start|stop|restart|status|run`: the supervisor as a service."""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rq import config
from rq.access import owner
from rq.cli import FAILED, OK, guarded, place, take_root, term
from rq.config import files
from rq.errors import BadConfig, OutcomeUnknown, Refused, Unreachable
from rq.files import disk
from rq.layout import Root
from rq.proc import locks, processes
from rq.words.states import Child

START_PATIENCE = 60.0  # seconds from the start to the first pong
PAGE_PATIENCE = 30.0  # seconds from then on until the page listens
PAGE_TRIES = 2  # ends of the web after which it is not waited for
STOP_PATIENCE = 180.0  # seconds for workers to end, folders to be made
_NOTE_EVERY = 5.0
NOT_RUNNING = 3  # what an init script expects of `status`

Say = Callable[[str], None]


def main(argv: list[str] | None = None) -> int:
    """Run `rq-mgr`."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _run(words))


def _run(words: list[str]) -> int:
    given, words = take_root(words)
    args = parser().parse_args(words)
    root = config.find_root(given)
    owner.act_as_owner(root)
    return _VERBS[args.what](root)


def parser() -> argparse.ArgumentParser:
    """Return the parser of its words."""
    reader = argparse.ArgumentParser(
        prog="rq-mgr",
        description="Start, stop or restart RQ as a service, or say whether it runs; "
        "`run` stays in the foreground.",
    )
    reader.add_argument("what", choices=sorted(_VERBS))
    return reader


def _start(root: Root) -> int:
    if not start(root, term.note):
        print(f"rq-mgr: already running with pid {pid_of(root)}")
        return OK
    print(f"rq-mgr: started with pid {pid_of(root)}", flush=True)
    why = await_page(root)
    if why:
        print(f"rq-mgr: the web does not answer: {why}", file=sys.stderr)
        return FAILED
    return OK


def await_page(root: Root) -> str:
    """Wait until the web listens; return why it does not, "" when it does or is not
    wanted. The queues run without it."""
    until = time.monotonic() + PAGE_PATIENCE
    while True:
        children = place.supervisor_status(root).get("children", [])
        web = next((child for child in children if child["kind"] == "web"), None)
        if web is None or web["state"] == Child.UP:
            return ""
        given_up = web["state"] == Child.FATAL or web["restarts"] >= PAGE_TRIES
        if given_up or time.monotonic() > until:
            return web["reason"] or f"it is {web['state']}; see the logs in {root.log}"
        time.sleep(0.02)


def _stop(root: Root) -> int:
    pid = pid_of(root)
    if not stop(root, term.note):
        print("rq-mgr: not running")
        return OK
    print(f"rq-mgr: stopped (was pid {pid})")
    return OK


def _restart(root: Root) -> int:
    stop(root, term.note)
    return _start(root)


def _status(root: Root) -> int:
    if not place.is_running(root):
        print("rq-mgr: not running")
        return NOT_RUNNING
    print(f"rq-mgr: running with pid {pid_of(root)}")
    return OK


def _foreground(root: Root) -> int:
    place.root_config(root)
    words = [*command(root), "--foreground"]
    sys.stdout.flush()
    os.execv(words[0], words)


_VERBS: dict[str, Callable[[Root], int]] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "status": _status,
    "run": _foreground,
}


def command(root: Root) -> list[str]:
    """Return the words that run the supervisor of a root."""
    return [sys.executable, "-I", "-m", "rq.supervisor", "--root", str(root.path)]


def start(root: Root, say: Say) -> bool:
    """Start the supervisor, detached; return once it answers. False: it ran already."""
    if place.is_running(root):
        if not locks.is_locked(root.supervisor_lock):
            raise Refused(
                f"the Ruby RQ runs in {root.path}: stop it with its own `rq-mgr stop`, "
                "then start RQ"
            )
        return False
    place.root_config(root)
    files.make_root(root)
    words_file = root.log / "start.log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(words_file, flags, 0o640), "wb") as last_words:
        # Its own session, and none of our descriptors: else `rq up | tee x` would not end.
        process = subprocess.Popen(
            command(root),
            stdin=subprocess.DEVNULL,
            stdout=last_words,
            stderr=last_words,
            start_new_session=True,
            cwd="/",
            env=environment(),
        )
    _await_pong(root, process, words_file, say)
    # Its parent is init from now on; this process has nothing to wait for.
    process.returncode = 0
    return True


def environment() -> dict[str, str]:
    """Return the environment of the supervisor: of the shell's, only these."""
    names = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    if os.environ.get("RQ_CRASH_AT"):
        environment["RQ_CRASH_AT"] = os.environ["RQ_CRASH_AT"]
    return environment


def _await_pong(
    root: Root, process: subprocess.Popen[bytes], last_words: Path, say: Say
) -> None:
    begun = time.monotonic()
    last_note = begun
    while not place.is_running(root):
        if process.poll() is not None and not place.is_running(root):
            why = disk.lack(root.path) or _tail(root, last_words)
            raise BadConfig(
                f"the supervisor ended at once with status {process.returncode}: {why}"
            )
        now = time.monotonic()
        if now - begun > START_PATIENCE:
            raise Unreachable(
                f"the supervisor (pid {process.pid}) was started and does not answer; "
                f"see {root.log}/queuemgr.log"
            )
        if now - last_note > _NOTE_EVERY:
            last_note = now
            say(f"waiting for the supervisor ({now - begun:.0f} s)")
        time.sleep(0.02)


def _tail(root: Root, last_words: Path) -> str:
    for path in (last_words, root.log / "queuemgr.log"):
        try:
            lines = path.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            continue
        if lines:
            return lines[-1]
    return f"see the logs in {root.log}"


def stop(root: Root, say: Say) -> bool:
    """Stop all of RQ and wait for its end. False: it did not run."""
    pid = pid_of(root)
    if pid is None:
        return False
    try:
        handle = processes.open_pidfd(pid)
    except ProcessLookupError:
        return False
    try:
        place.ask_supervisor(root, "shutdown")
        _await_end(root, handle, say)
    finally:
        os.close(handle)
    _await_owners(root, say)
    return True


def _await_end(root: Root, handle: int, say: Say) -> None:
    begun = time.monotonic()
    while not select.select([handle], [], [], _NOTE_EVERY)[0]:
        waited = time.monotonic() - begun
        if waited > STOP_PATIENCE:
            raise OutcomeUnknown(f"the supervisor has not ended after {waited:.0f} s")
        say(f"waiting for workers and queues to end ({waited:.0f} s)")


def _await_owners(root: Root, say: Say) -> None:
    """Queues end with their supervisor; wait for those that still write."""
    deadline = time.monotonic() + STOP_PATIENCE
    while left := [
        name for name in place.queue_names(root) if place.answers(root.queue(name))
    ]:
        if time.monotonic() > deadline:
            raise OutcomeUnknown(f"these queues have not ended: {', '.join(left)}")
        time.sleep(0.1)


def pid_of(root: Root) -> int | None:
    """Return the supervisor's pid, from itself; None when it does not run.

    OutcomeUnknown when one is there and does not answer in time.
    """
    try:
        return place.supervisor_status(root).get("pid")
    except Unreachable:
        return None


if __name__ == "__main__":
    raise SystemExit(main())
