"""The hosts of the past: RQ once relayed to any host, so the first start of a version that
asks for permission allows those that the history names. Once; later ones need a person.

It runs before any process of RQ takes a message: a message that is sent to an internal
host afterwards cannot allow its own host. The Ruby RQ asked for no permission either, and wrote no
journal: of its queues the folders tell, and for webhooks, too.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict, cast

import orjson

from rq import config, names
from rq.config import files
from rq.errors import BadConfig, BadInput, BadMessage, NoSuchMessage, RQError
from rq.journal import history
from rq.layout import QueueDir, Root
from rq.logs import fields
from rq.message.message import Message
from rq.outbound import addresses, peers, permits
from rq.spool import adoption, folders
from rq.words.nesting import Json
from rq.words.states import Event, State

DAYS = 30
_QUEUE, _WEBHOOK = "relay", "webhook"
_WAITING = (State.PREP, State.QUE, State.RUN)
_READ = 10_000  # files of waiting messages that the journal no longer names

log = logging.getLogger(__name__)


class _State(TypedDict, total=False):
    """The file that says that it was done."""

    entered: list[str]  # for the relay
    webhooks: list[str]
    at: float  # epoch seconds
    shown: bool  # to a person


def allow_once(root: Root) -> None:
    """Allow the hosts of the last 30 days, if that was never done in this root. Killed
    in the middle, the next start does it again."""
    if root.relay_hosts.exists():
        return
    now = time.time()
    relay, webhooks = sorted(_places(root, now)), sorted(_of_webhooks(root, now))
    todo = f"say `rq relay allow {' '.join(relay)}`"
    entered = _entered(permits.allow, root, relay, todo)
    todo = f"write {', '.join(webhooks)} into `allow` of {root.webhooks}"
    posted = _entered(permits.allow_webhooks, root, webhooks, todo)
    state: _State = {"entered": entered, "webhooks": posted, "at": now}
    state["shown"] = not (entered or posted)
    files.write_state(root.relay_hosts, state)


def _entered(
    allow: Callable[[Root, list[str]], list[str]],
    root: Root,
    places: list[str],
    todo: str,
) -> list[str]:
    """Allow hosts; return those that were not allowed before, none if it fails."""
    if not places:
        return []
    try:
        entered = allow(root, places)
    except (RQError, OSError) as error:
        log.error("the hosts of the history are not allowed: %s", f"{error}; {todo}")
        return []
    for place in entered:
        log.warning("RQ may ask a host of its history: %s", fields(host=place))
    return entered


def entered(root: Root) -> list[str]:
    """Return the hosts that the relay was allowed so."""
    return [str(place) for place in _state(root).get("entered", ())]


def news(root: Root) -> tuple[list[str], list[str]]:
    """Return the hosts that were allowed so, to the relay and to webhooks, until a person
    has seen them."""
    state = _state(root)
    if state.get("shown", True):
        return [], []
    return entered(root), [str(place) for place in state.get("webhooks", ())]


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
    since = now - DAYS * 86400
    dests = set(_dests(queue, since, waiting))
    for message in _of_ancestor(queue, (State.RELAYED,), since):
        dests.add(message.dest)
    for msg_id, state in list(waiting.items())[:_READ]:
        with contextlib.suppress(BadMessage, NoSuchMessage, OSError):
            dests.add(folders.read_message(queue, state, msg_id).dest)
    own = config.read_root(root)
    targets = [to for dest in dests if (to := _target(dest)) is not None]
    return {to.place for to in targets if not peers.is_own(to, own)}


def _of_webhooks(root: Root, now: float) -> set[str]:
    """Return HOST:PORT of all that the ancestor's webhooks were posted to since, and of
    what its waiting messages ask for."""
    urls: set[str] = set()
    for name in os.listdir(root.queues) if root.queues.is_dir() else ():
        queue = root.queue(name)
        if not names.is_queue_name(name) or not queue.config.is_file():
            continue
        if name == _WEBHOOK:
            since = now - DAYS * 86400
            ended = _of_ancestor(queue, (State.DONE, State.ERR), since)
            posted = itertools.chain(_of_ancestor(queue, _WAITING, 0.0), ended)
            urls.update(str(message.params.get("param1", "")) for message in posted)
        for message in _of_ancestor(queue, _WAITING, 0.0):
            urls.update(message.post_run_webhook)
    own = config.read_root(root)
    targets = [to for url in urls if (to := _target(url, peers.origin)) is not None]
    # Producers chose these addresses; they have no business with the web of this root.
    return {to.place for to in targets if not peers.is_web_of(to, own)}


def _of_ancestor(
    queue: QueueDir, states: Iterable[State], since: float
) -> Iterator[Message]:
    """Give the messages, made since then, of a queue that RQ has never owned."""
    if not adoption.is_foreign(queue):
        return
    for state in states:
        for msg_id in itertools.islice(folders.newest_first(queue, state), _READ):
            with contextlib.suppress(BadMessage, NoSuchMessage, OSError):
                if names.created(msg_id) >= since:
                    yield folders.read_message(queue, state, msg_id)


def _target(
    dest: str, parse: Callable[[str], peers.Target] = peers.target
) -> peers.Target | None:
    """Return the host of a dest; None when it needs no permission, or is none."""
    try:
        to = parse(dest)
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
