"""A Ruby RQ that still runs on the root: found by its sockets, and refused.

It takes no locks, so nothing else would keep two owners off one queue. An RQ of ours that
answers on a socket holds the lock beside it.
"""

from __future__ import annotations

from pathlib import Path

from rq import client, config
from rq.errors import BadConfig, Refused, RQError, Unreachable
from rq.layout import QueueDir, Root
from rq.proc import locks
from rq.supervisor import definitions

PATIENCE = 3.0  # seconds for an answer; a silent listener counts as running, too
_SHIPPED = "default_scripts"  # where the ancestor has its scripts
_DELETES = ("cleaner", "relay", "webhook", "rq_router")  # queues of the same name here


def refuse(root: Root) -> None:
    """Refused when something of an ancestor answers; the supervisor's lock is held."""
    if _answers(root.supervisor_socket):
        raise Refused(
            f"the Ruby RQ runs in {root.path}{_pid(root.supervisor_pid)}: stop it with "
            "its own `rq-mgr stop`, then start RQ"
        )
    for name in definitions.queues_of(root):
        queue = root.queue(name)
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


def shipped_scripts(root: Root, bundled: Path) -> dict[str, str]:
    """Return the queues that run a script of the ancestor where RQ, in the directory
    `bundled`, comes with its own, and what to do."""
    advice = {}
    for name in _DELETES:
        script = _script_of(root.queue(name), root)
        if script is not None and _is_shipped(script):
            advice[name] = (
                f"it runs {script} of the Ruby RQ, which moves folders without asking RQ: "
                f"`ln -sfn {bundled / name} {root.scandir / name}` replaces it by RQ's own"
            )
    return advice


def _script_of(queue: QueueDir, root: Root) -> Path | None:
    try:
        script = config.read_json(queue.config).get("script")
    except BadConfig:
        return None
    return (root.path / script).resolve() if isinstance(script, str) else None


def _is_shipped(script: Path) -> bool:
    if _SHIPPED in script.parts:
        return True
    try:
        with script.open("rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"ruby" in first
