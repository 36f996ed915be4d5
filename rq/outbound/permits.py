"""Which internal hosts may be asked: what the operator adds to and takes from
config/peers.json, for the relay; and what a root of the Ruby RQ brings along."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

from rq import config, names
from rq.config import files
from rq.errors import BadInput, Refused
from rq.layout import Root
from rq.outbound import addresses, peers
from rq.proc import locks

_ALLOW = "allow"


class Permit(TypedDict):
    """An internal host that may be asked."""

    host: str
    url: str | None  # of the settings that let it; None: the list `allow` does


def allow(root: Root, places: Iterable[str]) -> list[str]:
    """Let the relay ask hosts; return those that were not allowed before."""
    peers.read_all(root)  # what is wrong with it is said, and nothing written
    return _allow(root.peers, places)


def allow_webhooks(root: Root, places: Iterable[str]) -> list[str]:
    """Let webhooks be posted to hosts; return those that were not allowed before."""
    return _allow(root.webhooks, places)


def of_webhooks(root: Root) -> addresses.Allowed:
    """Return the internal hosts to which webhooks may be posted. BadConfig, BadInput."""
    data = config.read_json(root.webhooks) if root.webhooks.exists() else {}
    listed = data.get(_ALLOW) or []
    if not isinstance(listed, list):
        raise BadInput(f"{_ALLOW} is {listed!r:.60}, not a list")
    return addresses.allowed(map(str, listed))


def _allow(path: Path, places: Iterable[str]) -> list[str]:
    wanted = [spelled(place) for place in places]
    added: list[str] = []

    def add(texts: list[str]) -> None:
        added.extend(place for place in dict.fromkeys(wanted) if place not in texts)
        texts.extend(added)

    _change(path, add)
    return added


def forbid(root: Root, place: str) -> None:
    """Take back what `allow` has added; Refused when there is nothing to take."""
    peers.read_all(root)
    wanted = spelled(place)

    def take(texts: list[str]) -> None:
        written = {spelled(text): text for text in texts}
        if wanted not in written:
            raise Refused(_why_not(root, wanted))
        texts.remove(written[wanted])

    _change(root.peers, take)


def _why_not(root: Root, place: str) -> str:
    url = next(
        (u for u in peers.read_all(root).urls if peers.origin(u).place == place), ""
    )
    if url:
        return (
            f"{place} has settings in {root.peers}: take {url!r} out of `peers` there"
        )
    return f"{place} is not among the hosts that are allowed: `rq relay ls hosts`"


def spelled(text: str) -> str:
    """Return HOST, HOST:PORT or a network as it is kept; also of a URL. BadInput."""
    if "://" in text:
        return peers.origin(text).place
    host, port = addresses.split_port(text)
    addresses.allowed([text])
    name = addresses.plain(host)
    return name if port is None else names.host_port(name, port)


def listed(root: Root) -> list[Permit]:
    """Return the hosts that may be asked though they are internal."""
    table = peers.read_all(root)
    by_list = [Permit(host=text, url=None) for text in table.texts]
    by_url = [Permit(host=peers.origin(url).place, url=url) for url in table.urls]
    return [*by_list, *by_url]


def _change(path: Path, act: Callable[[list[str]], None]) -> None:
    """Let `act` change the list; all else in the file stays as it is."""
    turn = locks.lock_waiting(path.with_name(f".{path.name}.lock"))
    try:
        data = config.read_json(path) if path.exists() else {}
        before = list(data.get(_ALLOW) or [])
        texts = list(before)
        act(texts)
        if texts != before:
            text = json.dumps({**data, _ALLOW: texts}, indent=1, ensure_ascii=False)
            files.write_secret(path, f"{text}\n")
    finally:
        os.close(turn)


def takes(place: str, url: str) -> bool:
    """Return whether allowing `place` may let `url` be asked."""
    try:
        at, port = peers.origin(url), addresses.split_port(place)[1]
    except BadInput:
        return False
    same = addresses.plain(at.host) == addresses.split_port(place)[0]
    network = "/" in place
    return (same or network) and port in (None, at.port)
