"""config/peers.json: how single hosts are reached; passwords live nowhere else."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from rq import config, names
from rq.config.settings import RootConfig
from rq.errors import BadConfig, BadInput
from rq.layout import Root

_KEYS = ("ca", "peers")
_PEER_KEYS = ("user", "password", "ca", "timeout")
_LONGEST = 1000  # characters of an URL; those who wait for it name it
_USUAL = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A queue of a host, by its URL."""

    scheme: str
    host: str
    port: int
    prefix: str  # of all paths, no slash at its end
    queue: str

    @property
    def peer(self) -> str:
        """Return the host as this one tells hosts apart: `http://HOST:PORT`."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}:{self.port}"

    def path(self, rest: str) -> str:
        return f"{self.prefix}/q/{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What is set for a host."""

    user: str | None = None
    password: str = ""
    ca: str | None = None  # file of further certificate authorities
    timeout: float | None = None  # seconds it may be silent at any step


def target(dest: str) -> Target:
    """Return what a dest names; BadInput when it is no queue of a host."""
    parts, port = _split(dest)
    prefix, has_queue, rest = parts.path.partition("/q/")
    if not has_queue or not parts.hostname:
        raise BadInput(f"{dest!r:.200} is not http(s)://HOST[:PORT]/…/q/NAME")
    if not parts.path.isascii() or " " in dest or len(dest) > _LONGEST:
        raise BadInput(
            f"{dest!r:.200} cannot be sent to: at most {_LONGEST} characters, no blanks, "
            "and others than ASCII as %XX"
        )
    if parts.username is not None:
        raise BadInput("a password in an URL is shown to all: put it into peers.json")
    return Target(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        prefix=prefix.rstrip("/"),
        queue=names.queue_name(rest.partition("/")[0]),
    )


def _split(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInput(f"{url!r:.200}: {error}") from None
    if parts.scheme not in _USUAL or not url.isprintable():
        raise BadInput(f"{url!r:.200} is not http(s)://HOST[:PORT]/…/q/NAME")
    return parts, _USUAL[parts.scheme] if port is None else port


def is_own(found: Target, own: RootConfig) -> bool:
    """Return whether a target is a queue of this root."""
    hosts = {own.host.lower(), own.addr.lower(), "localhost", "127.0.0.1", "::1"}
    same_place = found.prefix == own.relative_root.rstrip("/")
    return found.host in hosts and found.port == own.port and same_place


def read(root: Root, to: Target) -> Peer:
    """Return what is set for a host; BadConfig names file and key."""
    path = root.peers
    if not path.exists():
        return Peer()
    data = config.read_json(path)
    try:
        _known(data, _KEYS)
        rows: Mapping[str, Any] = data.get("peers") or {}
        for row in rows.values():
            _known(row, _PEER_KEYS)
        if any("password" in row for row in rows.values()):
            _private(path)
        found = {_origin(url): row for url, row in rows.items()}.get(to.peer, {})
        return Peer(**{"ca": data.get("ca"), **found})
    except (AttributeError, TypeError, ValueError, BadInput) as error:
        raise BadConfig(f"{path}: {error}") from None


def _origin(url: str) -> str:
    parts, port = _split(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ValueError(f"it holds passwords and has mode {mode:04o}: chmod 600 it")


def _known(data: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for name, value in data.items():
        if name not in keys:
            close = difflib.get_close_matches(name, keys, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"unknown key {name!r}{hint}")
        if name == "timeout":
            _seconds(value)
        elif name != "peers" and not isinstance(value, str):
            raise ValueError(f"{name} is not text")


def _seconds(value: Any) -> None:
    if type(value) not in (int, float) or not 0 < value <= 86400:
        raise ValueError("timeout is not a number of seconds, over 0, at most 86400")
