"""Whether all that RQ starts is ready, and what keeps it from that."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from rq import names
from rq.cli import place, term
from rq.files import disk
from rq.layout import Root
from rq.replies import ChildView, SupervisorStatus, health
from rq.words.states import Child

WEB = "web"  # queues do without it: what keeps it from starting is said and left
READY_PATIENCE = 30.0  # seconds for one more queue to be up
LACK_PATIENCE = 3.0  # the same on a full disk
_NOTE_EVERY = 3.0
_NAMED = 20  # queues


def await_ready(root: Root) -> bool:
    """Wait until every queue is up; say which is not, and why."""
    begun = last_note = time.monotonic()
    patience = Patience(begun)
    while True:
        supervisor = place.supervisor_status(root)
        missing = _not_yet(root, supervisor)
        if not missing:
            break
        now = time.monotonic()
        lack = disk.lack(root.path)
        limit = READY_PATIENCE if lack is None else LACK_PATIENCE
        if patience.ends(len(missing), now, limit):
            term.note(f"not ready after {now - begun:.0f} s: {shortened(missing)}")
            for line in [lack] if lack else _not_up(supervisor):
                term.note(line)
            return False
        if now - last_note > _NOTE_EVERY:
            last_note = now
            term.note(f"waiting for {shortened(missing)} ({now - begun:.0f} s)")
        time.sleep(0.05)
    _tell(root, supervisor)
    return True


def _tell(root: Root, supervisor: SupervisorStatus) -> None:
    """Say which queues are ready, and what is not up."""
    late = {child["name"] for child in _late(supervisor)}
    queues = [name for name in place.queue_names(root) if name not in late]
    verb = "is" if len(queues) == 1 else "are"
    number = term.number(len(queues), "queue")
    print(f"{number} {verb} ready: {shortened(queues)}", flush=True)
    for line in _not_up(supervisor):
        term.note(line)


def _not_yet(root: Root, supervisor: SupervisorStatus) -> list[str]:
    """Name what is still starting, and the definitions that are no queue yet."""
    children = {child["name"]: child for child in supervisor.get("children", [])}
    starting = {
        name
        for name, child in children.items()
        if child.get("state") == Child.STARTING
        or (child.get("state") == Child.BACKOFF and child.get("kind") != WEB)
        or (child.get("state") == Child.DOWN and child.get("wanted") == "UP")
    }
    broken = _scandir_errors(supervisor)
    declared = _declared(root) - children.keys() - broken.keys()
    return sorted(starting | declared)


def _declared(root: Root) -> set[str]:
    """Name the definitions that scandir will make queues of."""
    try:
        links = [entry for entry in root.scandir.iterdir() if entry.is_symlink()]
    except FileNotFoundError:
        return set()
    return {
        link.name
        for link in links
        if names.is_queue_name(link.name) and os.access(link / "run", os.X_OK)
    }


def _scandir_errors(supervisor: SupervisorStatus) -> Mapping[str, str]:
    return supervisor.get("scandir", {}).get("errors", {})


def _not_up(supervisor: SupervisorStatus) -> list[str]:
    children = [
        f"{child['name']} is {child['state']}: {child.get('reason') or 'see log/'}"
        for child in _late(supervisor)
    ]
    children += [trouble.sentence for trouble in health.of_held(supervisor)]
    broken = _scandir_errors(supervisor).items()
    return children + [f"scandir/{name}: {text}" for name, text in broken]


def _late(supervisor: SupervisorStatus) -> Sequence[ChildView]:
    """Return the children that should be up and are not."""
    return [
        child
        for child in supervisor.get("children", [])
        if child.get("state") not in (Child.UP, Child.PARKED)
        and child.get("wanted") == "UP"
    ]


# ---- how long to wait for queues, and how to name them


class Patience:
    """Patience with queues that start: it lasts while one after another becomes ready,
    for hundreds take longer than a few."""

    def __init__(self, now: float) -> None:
        """`now`, here and in `ends`, is in seconds of the monotonic clock."""
        self._fewest: int | None = None
        self._since = now

    def ends(self, missing: int, now: float, limit: float) -> bool:
        """Return whether `missing` were never fewer for more than `limit` seconds."""
        if self._fewest is None or missing < self._fewest:
            self._fewest, self._since = missing, now
        return now - self._since > limit


def shortened(queues: list[str]) -> str:
    """Name queues, and of hundreds the first.

    >>> shortened(["a", "b"])
    'a, b'
    """
    more = len(queues) - _NAMED
    named = ", ".join(queues[:_NAMED])
    return f"{named} and {more} more" if more > 0 else named
