"""The hosts of the past: RQ once relayed to any host, so the first start of a version that
asks for permission allows those that the history names. Once; later ones need a person.

It runs before any process of RQ takes a message: a message that is sent to an internal
host afterwards cannot allow its own host.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict, cast

import orjson

from rq import config
from rq.config import files
from rq.errors import BadConfig, BadInput, BadMessage, NoSuchMessage, RQError
from rq.journal import history
from rq.layout import QueueDir, Root
from rq.logs import fields
from rq.nesting import Json
from rq.outbound import addresses, peers, permits
from rq.spool import folders
from rq.states import Event, State

DAYS = 30
_QUEUE = "relay"
_WAITING = (State.PREP, State.QUE, State.RUN)
_READ = 10_000  # files of waiting messages that the journal no longer names

log = logging.getLogger(__name__)


class _State(TypedDict, total=False):
    """The file that says that it was done."""

    entered: list[str]
    at: float  # epoch seconds
    shown: bool  # to a person


def allow_once(root: Root) -> None:
    """Allow the hosts of the last 30 days, if that was never done in this root. Killed
    in the middle, the next start does it again."""
    if root.relay_hosts.exists():
        return
    places = sorted(_places(root, time.time()))
    entered: list[str] = []
    try:
        entered = permits.allow(root, places) if places else []
    except (RQError, OSError) as error:
        text = f"{error}; say `rq relay allow {' '.join(places)}`"
        log.error("the hosts of the history are not allowed: %s", text)
    for place in entered:
        log.warning("the relay may ask a host of its history: %s", fields(host=place))
    state = {"entered": entered, "at": time.time(), "shown": not entered}
    files.write_state(root.relay_hosts, state)


def entered(root: Root) -> list[str]:
    """Return the hosts that were allowed so."""
    return [str(place) for place in _state(root).get("entered", ())]


def news(root: Root) -> list[str]:
    """Return the hosts that were allowed so, until a person has seen them."""
    return [] if _state(root).get("shown", True) else entered(root)


def note_shown(root: Root) -> None:
    """Note that a person has seen them."""
    with contextlib.suppress(OSError):
        files.write_state(root.relay_hosts, {**_state(root), "shown": True})


def _state(root: Root) -> _State:
    try:
        return cast(_State, config.read_json(root.relay_hosts))
    except BadConfig:
        return {}


def _places(root: Root, now: float) -> set[str]:
    """Return HOST:PORT of all that was relayed since, or waits to be."""
    queue = root.queue(_QUEUE)
    if not queue.config.is_file():
        return set()
    waiting = {
        msg_id: state
        for state in _WAITING
        for msg_id in folders.list_state(queue, state)
    }
    dests = set(_dests(queue, now - DAYS * 86400, waiting))
    for msg_id, state in list(waiting.items())[:_READ]:
        with contextlib.suppress(BadMessage, NoSuchMessage, OSError):
            dests.add(folders.read_message(queue, state, msg_id).dest)
    own = config.read_root(root)
    targets = [to for dest in dests if (to := _target(dest)) is not None]
    return {to.place for to in targets if not peers.is_own(to, own)}


def _target(dest: str) -> peers.Target | None:
    """Return the host of a dest; None when it needs no permission, or is none."""
    try:
        to = peers.target(dest)
        permits.spelled(to.place)
        public = addresses.is_public(ipaddress.ip_address(to.host))
    except BadInput:
        return None
    except ValueError:
        public = False  # a name
    return None if public else to


def _dests(queue: QueueDir, since: float, waiting: dict[str, State]) -> Iterator[str]:
    """Give the dest of every message that was relayed, by the journal, or that waits,
    the latest first; those are taken out of `waiting`."""
    relayed: set[str] = set()
    for path, is_sealed in _segments(queue, since):
        for text in reversed(path.read_bytes().split(b"\n")):
            if b'"ev":"relay"' not in text and b'"dest":"http' not in text:
                continue
            event = _event(text)
            msg_id, message = event.get("msg"), event.get("message")
            if event.get("ev") == Event.RELAY:
                relayed.add(str(msg_id))
            if not isinstance(message, dict):
                continue
            if msg_id in relayed or msg_id in waiting or not is_sealed:
                relayed.discard(str(msg_id))
                waiting.pop(str(msg_id), None)
                yield str(message.get("dest"))


def _segments(queue: QueueDir, since: float) -> Iterator[tuple[Path, bool]]:
    """Give the files of the journal since then, the latest first, and whether each is
    sealed; of the others not all has reached the folders."""
    place = queue.journal_dir
    for segment in reversed(history.active_segments(place)):
        yield segment.path, False
    for journal in history.journals(place):
        for segment in reversed(history.sealed_segments(place, journal)):
            if segment.path.stat().st_mtime >= since:
                yield segment.path, True


def _event(text: bytes) -> Mapping[str, Json]:
    try:
        event: Json = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}
