"""`rq sandbox -- COMMAND`: an RQ for the time of one command, say of tests.

The command has the address in RQ_URL and a token in RQ_TOKEN; its exit status is that of
`rq sandbox`. When it fails, the messages that failed are printed with their logs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from rq.access.roles import EVERY_QUEUE, Role
from rq.cli import output, owner, place, sandbox_root, term
from rq.cli.sandbox_keeper import Keeper
from rq.errors import BadInput, Refused, RQError
from rq.layout import Root
from rq.proc import daemon, listening
from rq.replies import MessageRow
from rq.words.states import Child, State

CANNOT_START = 127  # as env(1) says it of its command
_READY_PATIENCE = 60.0  # seconds; ten sandboxes may start at once
_STOP_PATIENCE = 10.0  # from TERM to KILL of the command
_LOOK = 0.01
_MOST = 10  # failed messages
_LOG_BYTES = 4096  # of the end of a log
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HEARD = {signal.SIGCHLD, *_SIGNALS}
_ABOUT = """\
Run a command with an RQ of its own, say the tests of a program that sends messages:

  rq sandbox --scandir queues -- pytest
  rq sandbox --queue mail=test/mail.sh -- node --test

The command has the address of that RQ in RQ_URL, a token in RQ_TOKEN, its root in
RQ_ROOT and the secret of its webhooks in RQ_WEBHOOK_SECRET. The exit status is that of
the command; when it fails, failed messages are printed with their logs. Then all is
ended and removed. There are the queues debug, flow and webhook, and those that are named;
no timers, no index, no broker.
"""


def sandbox(root: str | None, words: list[str]) -> int:
    """Run a command in a sandbox; return its exit status."""
    wanted, command = _wanted(words)
    if root is not None:
        raise BadInput("a sandbox has a root of its own: leave --root away")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    with _running(wanted) as (own, environment):
        code = _run(command, environment)
        if code:
            tell_of_failed(own)
    return code


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _wanted(words: list[str]) -> tuple[sandbox_root.Wanted, list[str]]:
    at = words.index("--") if "--" in words else len(words)
    args = _parser().parse_args(words[:at])
    command = words[at + 1 :]
    if not command:
        raise BadInput("say the command after --: rq sandbox -- COMMAND [ARG …]")
    wanted = sandbox_root.Wanted(
        scandir=args.scandir,
        queues=sandbox_root.parse_queues(args.queue),
        role=Role(args.role),
        token_queues=tuple(args.token_queue or EVERY_QUEUE),
    )
    return wanted, command


def _parser() -> argparse.ArgumentParser:
    parser = term.parser("sandbox", _ABOUT)
    parser.usage = (
        "rq sandbox [--scandir DIR] [--queue NAME=SCRIPT …] -- COMMAND [ARG …]"
    )
    parser.add_argument(
        "--scandir",
        type=Path,
        metavar="DIR",
        help="queues: the definitions in DIR, as directories or links to them",
    )
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME=SCRIPT",
        help="a queue and its script, or the directory of its definition; NAME alone is "
        "a queue that comes with RQ; can be repeated",
    )
    parser.add_argument(
        "--role", choices=[*Role], default=Role.ADMIN, help="of the token (%(default)s)"
    )
    parser.add_argument(
        "--token-queue",
        action="append",
        metavar="PATTERN",
        help="the queues that the token is for, say 'mail-*'; can be repeated (every queue)",
    )
    return parser


# ---- an RQ that runs


@contextlib.contextmanager
def _running(wanted: sandbox_root.Wanted) -> Iterator[tuple[Root, dict[str, str]]]:
    """Give the root of an RQ that is ready, and the environment of the command."""
    directory = tempfile.mkdtemp(prefix="rq-sandbox-")
    keeper = Keeper(Root(Path(os.path.realpath(directory))))
    try:
        with _reserved() as port:
            environment = sandbox_root.make(keeper.root, port, wanted)
            keeper.start()
            _await_ready(keeper)
        yield keeper.root, environment
    finally:
        _ignore_signals()
        keeper.end()


def _ignore_signals() -> None:
    """Let nothing more keep the end from being waited for: it takes a moment."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def _reserved() -> Iterator[int]:
    """Give a free port. While its sockets are bound and do not listen, no other sandbox
    is given it, and a server that names it may listen there."""
    while (bound := listening.bind("127.0.0.1", 0, "a sandbox")).held:
        bound.close()
    try:
        yield int(bound.socks[0].getsockname()[1])
    finally:
        bound.close()


def _await_ready(keeper: Keeper) -> None:
    """Wait until the web and all queues serve; Refused says what keeps them."""
    deadline = time.monotonic() + _READY_PATIENCE
    for fd in keeper.words:
        _await_word(keeper.root, fd, deadline)
    while starting := _not_up(keeper.root):
        if time.monotonic() > deadline:
            raise Refused(f"the sandbox is not ready: {', '.join(starting)}")
        time.sleep(_LOOK)


def _await_word(root: Root, fd: int, deadline: float) -> None:
    timeout = max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([fd], [], [], timeout)
    word = os.read(fd, 4096).decode("utf-8", "replace") if ready else ""
    os.close(fd)
    if word != "\n":
        why = word.removeprefix("FATAL ").strip() or _last_words(root)
        raise Refused(f"the sandbox did not start: {why}")


def _last_words(root: Root) -> str:
    lines = (root.log / "start.log").read_text("utf-8", "replace").splitlines()
    return lines[-1] if lines else "it did not say why in time"


def _not_up(root: Root) -> list[str]:
    """Name the children that are not up yet; Refused when one has given up."""
    children = place.supervisor_status(root).get("children", [])
    for child in children:
        if child["state"] in (Child.FATAL, Child.BACKOFF):
            raise Refused(f"queue {child['name']} does not start: {child['reason']}")
    return [
        child["name"]
        for child in children
        if child["state"] not in (Child.UP, Child.PARKED)
    ]


# ---- the command


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command, and pass signals on to it; return its exit status."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)

    def prepare() -> None:
        daemon.die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        child = subprocess.Popen(command, env=environment, preexec_fn=prepare)  # noqa: PLW1509
    except OSError as error:
        term.note(f"rq: {command[0]} cannot be started: {error.strerror}")
        return CANNOT_START
    try:
        status = _awaited(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 128 - status if status < 0 else status


def _awaited(child: subprocess.Popen[bytes]) -> int:
    """Return how the command ended. A signal of a terminal reaches it without us: only
    what another process sent to us alone is passed on."""
    deadline = float("inf")
    while True:
        info = signal.sigtimedwait(_HEARD, 1.0)
        status = child.poll()
        if status is not None:
            return status
        if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:
            child.send_signal(info.si_signo)
            deadline = min(deadline, time.monotonic() + _STOP_PATIENCE)
        if time.monotonic() > deadline:
            child.kill()


# ---- what is told of messages when the command has failed


def tell_of_failed(root: Root) -> None:
    """Print the messages that failed, or failed and wait for another attempt, with the
    ends of their logs, on standard error."""
    with owner.Reader(root) as reader:
        rows = [
            row for name in place.queue_names(root) for row in _failed(reader, name)
        ]
        rows.sort(key=lambda row: row["msg_id"])
        for row in rows[:_MOST]:
            with contextlib.suppress(RQError, OSError):
                _tell(reader, row)
    if len(rows) > _MOST:
        term.note(f"rq: {len(rows) - _MOST} more failed")


def _failed(reader: owner.Reader, queue: str) -> list[MessageRow]:
    try:
        failed = reader.messages(queue, State.ERR, 2 * _MOST)
        waiting = reader.messages(queue, State.QUE, 2 * _MOST)
    except RQError:
        return []
    return [*failed, *(row for row in waiting if row.get("attempt"))]


def _tell(reader: owner.Reader, row: MessageRow) -> None:
    message = reader.message(row["queue"], row["msg_id"])
    story: Mapping[str, object] = message.get("story") or {}
    term.note(
        f"rq: {row['queue']}/{row['msg_id']} {row['state']}: {story.get('why', '')}"
    )
    log = output.log_path(reader, row["queue"], row["msg_id"])
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
        for line in file.read().decode("utf-8", "replace").splitlines():
            print(f"    {line}", file=sys.stderr)
