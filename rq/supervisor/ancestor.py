"""A root of the Ruby RQ: what still runs on it is found by its sockets, and refused; what
would act before its operator has decided waits.

It takes no locks, so nothing else would keep two owners off one queue. An RQ of ours that
answers on a socket holds the lock beside it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from rq.config import adopted
from rq.errors import Refused, RQError, Unreachable
from rq.layout import Root
from rq.proc import locks
from rq.rpc import client
from rq.spool import adoption, restored
from rq.supervisor import definitions

PATIENCE = 3.0  # seconds for an answer; a silent listener counts as running, too


def refuse(root: Root) -> None:
    """Refused when something of an ancestor answers; the supervisor's lock is held."""
    if _answers(root.supervisor_socket):
        raise Refused(
            f"the Ruby RQ runs in {root.path}{_pid(root.supervisor_pid)}: stop it with "
            "its own `rq-mgr stop`, then start RQ"
        )
    for name in definitions.queues_of(root):
        queue = root.queue(name)
        if not os.path.exists(queue.socket):
            continue
        if not locks.is_locked(queue.lock) and _answers(queue.socket):
            raise Refused(
                f"a process of the Ruby RQ still owns queue {name}{_pid(queue.pid)}: end "
                "it, then start RQ"
            )


def _answers(socket: Path) -> bool:
    try:
        client.ask(socket, "ping", timeout=PATIENCE)
    except Unreachable:
        return False
    except RQError:  # it took the question
        return True
    return True


def _pid(path: Path) -> str:
    try:
        pid = path.read_text().strip()
    except OSError:
        return ""
    return f" (pid {pid})" if pid.isdigit() else ""


def scripts(root: Root) -> dict[str, str]:
    """Return the queues that run a script of the ancestor where RQ has its own, and what
    to do; those that wait because of it say it themselves."""
    queues = {name: root.queue(name) for name in definitions.queues_of(root)}
    return {
        name: advice
        for name, queue in queues.items()
        if (advice := restored.advice(queue)) is not None
        and restored.why_not_taken_over(queue) is None
    }


def take_over(root: Root) -> None:
    """Note, once in the life of a root, that it was an ancestor's and which timers it
    had: these wait. Before any child starts, so none of them fires first."""
    if not root.adopted.exists() and adoption.is_ancestors(root):
        adopted.note(root, time.time())
