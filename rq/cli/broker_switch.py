"""Starts and stops the broker of a root, with the settings that a person has chosen."""

from __future__ import annotations

import time
from collections.abc import Collection

from rq.cli import place
from rq.config import files
from rq.config.broker import BrokerConfig
from rq.errors import Refused
from rq.layout import Root
from rq.replies import ChildView
from rq.words.states import Child

_SETTLED = (Child.UP, Child.FATAL, Child.BACKOFF)
_ENDED = (Child.DOWN, Child.FATAL)
_PATIENCE = 60.0  # seconds until it says how far the start is


def keep(root: Root, wanted: BrokerConfig) -> None:
    """Keep settings, for now and later starts."""
    files.write_secret_state(root.broker_config, wanted.to_json())


def start(root: Root) -> None:
    """Let it run, again if it does, with the settings that are kept; return when it
    serves. Refused: it does not, and why."""
    before = _pid(child(root))
    place.ask_supervisor(root, "broker")
    there = _until(root, _SETTLED, other_than=before)
    if there is None or there["state"] != Child.UP:
        why = (there or {}).get("reason") or "see log/broker.log"
        raise Refused(f"the broker does not run: {why}")


def stop(root: Root) -> None:
    """Let it be down, as is kept. Refused: it goes on."""
    place.ask_supervisor(root, "broker")
    there = _until(root, _ENDED)
    if there is not None and there["state"] not in _ENDED:
        raise Refused(f"the broker is still {there['state']}")


def child(root: Root) -> ChildView | None:
    """Return the supervisor's child; None: it was never started."""
    children = place.supervisor_status(root).get("children") or []
    return next((child for child in children if child["kind"] == "broker"), None)


def is_up(root: Root) -> bool:
    """Return whether it serves now."""
    there = child(root)
    return there is not None and there["state"] == Child.UP


def _pid(there: ChildView | None) -> int | None:
    return None if there is None else there.get("pid")


def _until(
    root: Root, states: Collection[str], other_than: int | None = None
) -> ChildView | None:
    """Return the child when it is in one of some states, as another process than before,
    or has not come there for long; None: there is none."""
    end = time.monotonic() + _PATIENCE
    while True:
        there = child(root)
        is_old = other_than is not None and _pid(there) == other_than
        if there is None or (there["state"] in states and not is_old):
            return there
        if time.monotonic() > end:
            return there
        time.sleep(0.05)
