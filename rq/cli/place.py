"""Which root is meant, and whether RQ runs there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import rq
from rq import config, names
from rq.cli import term
from rq.config import parked
from rq.config.settings import RootConfig
from rq.errors import NOT_YOURS, BadConfig, NoSuchQueue, Refused, RQError, Unreachable
from rq.layout import QueueDir, Root
from rq.proc import locks
from rq.replies import SupervisorStatus
from rq.rpc import client
from rq.words.nesting import Json

CHECKOUT = Path(rq.__file__).resolve().parent.parent
ASK_TIMEOUT = 10.0


def root_config(root: Root) -> RootConfig:
    """Return the config; BadConfig says how to set up a root that has none."""
    if not root.config.exists():
        raise BadConfig(f"RQ is not installed in {root.path}: run `rq up`")
    return config.read_root(root)


def queue_names(root: Root) -> list[str]:
    """Return the names of the queues that have a directory."""
    try:
        with os.scandir(root.queues) as entries:
            return sorted(
                entry.name for entry in entries if names.is_queue_name(entry.name)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def queue_dir(root: Root, name: str) -> QueueDir:
    """Return the directory of a queue; NoSuchQueue suggests the near name."""
    names.queue_name(name)
    if os.path.lexists(root.queue(name).path):
        return root.queue(name)
    import difflib

    existing = queue_names(root)
    close = difflib.get_close_matches(name, existing, 1)
    hint = f"; did you mean {close[0]!r}?" if close else "; `rq queue ls` lists them"
    if os.path.lexists(root.scandir / name):
        hint = f": `rq status` says why scandir/{name} is not used"
    raise NoSuchQueue(f"there is no queue {name!r} in {root.path}{hint}")


def ask_supervisor(
    root: Root, command: str, arg: object = b"", timeout: float = ASK_TIMEOUT
) -> Json:
    """Return the supervisor's reply; Unreachable says how to start it."""
    try:
        reply = client.ask(root.supervisor_socket, command, arg, timeout=timeout)
        return cast(Json, reply)
    except Unreachable:
        raise _not_running(root) from None


def supervisor_status(root: Root) -> SupervisorStatus:
    """Return what the supervisor says of itself and its children."""
    reply = ask_supervisor(root, "status")
    return cast(SupervisorStatus, reply if isinstance(reply, dict) else {})


def demand_running(root: Root) -> None:
    """Raise Unreachable when no supervisor answers."""
    if not is_running(root):
        raise _not_running(root)


def _not_running(root: Root) -> Unreachable:
    return Unreachable(f"RQ is not running in {root.path}: run `rq up`")


def is_running(root: Root) -> bool:
    """Return whether a supervisor answers."""
    try:
        reply = client.ask(root.supervisor_socket, "ping", timeout=ASK_TIMEOUT)
    except RQError:
        return False
    return bool(reply == ["pong"])


def check_leave(root: Root) -> None:
    """Refused when this user may not ask a supervisor, which then seems not to run."""
    sock = root.supervisor_socket
    if os.path.exists(sock) and not os.access(sock, os.W_OK):
        raise Refused(f"{sock}: {NOT_YOURS}")


def is_parked(root: Root, queue: str) -> bool:
    """Whether a queue is parked, and all lies as it has left it."""
    return locks.is_locked(root.supervisor_lock) and parked.is_current(root, queue)


def answers(queue: QueueDir) -> bool:
    """Return whether a process listens for this queue. Of one that is parked the supervisor
    does, and to connect would start it."""
    if is_parked(Root(queue.path.parent.parent), queue.name):
        return True
    try:
        client.Connection(queue.path / "queue.sock", ASK_TIMEOUT).close()
    except RQError:
        return False
    return True


def warn_of_unclean_end(root: Root) -> None:
    """Warn when RQ was killed: the folders may then lag behind the journal."""
    if not root.queues.is_dir() or is_running(root):
        return
    from rq import spool

    unclean = [
        name
        for name in queue_names(root)
        if not answers(root.queue(name)) and not spool.stopped_cleanly(root.queue(name))
    ]
    if unclean:
        term.note(
            f"RQ was killed, and folders of {', '.join(unclean)} may lag behind: run "
            "`rq check --fix` (it starts nothing) before you move or edit any"
        )
