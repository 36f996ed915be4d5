"""config/peers.json: how single hosts are reached, and which internal ones may be asked;
passwords and tokens of other hosts live nowhere else."""

from __future__ import annotations

import base64
import functools
import ipaddress
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

from rq import config, names
from rq.config.settings import RootConfig
from rq.config.values import check_key
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.outbound import addresses
from rq.outbound.addresses import Allowed

_KEYS = ("allow", "ca", "peers")
_PEER_KEYS = ("user", "password", "token", "insecure", "ca", "timeout")
_SECRETS = ("password", "token")
_LONGEST = 1000  # characters of a URL; messages that wait for it name it
Row: TypeAlias = Mapping[str, Any]  # a field of a Peer: what `_check` lets through
USUAL = {"http": 80, "https": 443}


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
        """Return the name under which a host is known here: `http://HOST:PORT`."""
        return f"{self.scheme}://{self.place}"

    @property
    def place(self) -> str:
        """Return `HOST:PORT`."""
        return names.host_port(self.host, self.port)

    def path(self, rest: str) -> str:
        return f"{self.prefix}/q/{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What is set for a host."""

    user: str | None = None
    password: str = ""
    token: str | None = None  # in the place of user and password
    insecure: bool = False  # these may go over plain HTTP, for all to read
    ca: str | None = None  # file of further certificate authorities
    timeout: float | None = None  # seconds it may be silent at any step
    allow: Allowed = field(default_factory=Allowed)

    @property
    def login(self) -> dict[str, str]:
        """Return the header that says who asks; {} when nothing is set."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is None:
            return {}
        pair = f"{self.user}:{self.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def target(dest: str) -> Target:
    """Return what a dest names; BadInput when it is no queue of a host."""
    parts, port = _split(dest)
    prefix, has_queue, rest = parts.path.partition("/q/")
    if not has_queue or not parts.hostname:
        raise BadInput(f"{dest!r:.200} is not http(s)://HOST[:PORT]/…/q/NAME")
    if not parts.path.isascii() or " " in dest or len(dest) > _LONGEST:
        raise BadInput(
            f"{dest!r:.200} cannot be sent to: a URL has at most {_LONGEST} characters, no "
            "blanks, and what is not ASCII as %XX"
        )
    if parts.username is not None:
        raise BadInput(
            "a password in a URL is shown to everybody: put it into config/peers.json"
        )
    return Target(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        prefix=prefix.rstrip("/"),
        queue=names.queue_name(rest.partition("/")[0]),
    )


def origin(url: str) -> Target:
    """Return the host that a URL of peers.json names; its queue is empty."""
    parts, port = _split(url)
    host = parts.hostname
    if not host:
        raise BadInput(f"{url!r:.200} is not http(s)://HOST[:PORT]")
    prefix = parts.path.rstrip("/")
    return Target(scheme=parts.scheme, host=host, port=port, prefix=prefix, queue="")


def _split(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
        names.authority(parts.netloc.rpartition("@")[2])
    except ValueError as error:
        raise BadInput(f"{url!r:.200}: {error}") from None
    if parts.scheme not in USUAL or not url.isprintable():
        raise BadInput(f"{url!r:.200} is not http(s)://HOST[:PORT]/…/q/NAME")
    return parts, USUAL[parts.scheme] if port is None else port


def is_own(to: Target, own: RootConfig) -> bool:
    """Return whether a target is a queue of this root."""
    return is_web_of(to, own) and to.prefix == own.relative_root.rstrip("/")


def is_here(url: str, own: RootConfig) -> bool:
    """Return whether a URL is that of this root: what its full ids begin with."""
    try:
        return is_own(origin(url), own)
    except BadInput:
        return False


def is_web_of(to: Target, own: RootConfig) -> bool:
    """Return whether a target is served by the web of this root, whatever its path is."""
    hosts = {own.host.lower(), own.addr.lower(), "localhost", "127.0.0.1", "::1"}
    is_ours = to.host.rstrip(".") in hosts or _is_address_here(to.host)
    return is_ours and to.port == own.port


def _is_address_here(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host)
        return ip.is_loopback or addresses.is_own(ip)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Table:
    """The file as a value."""

    common: Peer = field(default_factory=Peer)
    peers: Mapping[str, Peer] = field(default_factory=dict)  # by `http://HOST:PORT`
    urls: tuple[str, ...] = ()  # the keys of `peers` as they are written
    texts: tuple[str, ...] = ()  # `allow` as it is written


def read(root: Root, to: Target) -> Peer:
    """Return what is set for a host; BadConfig names file and key."""
    table = read_all(root)
    return table.peers.get(to.peer, table.common)


def read_all(root: Root) -> Table:
    """Return all that is set; BadConfig names file and key."""
    stamp = config.stamp(root.peers)
    return Table() if stamp is None else _read(root.peers, stamp)


@functools.lru_cache(maxsize=2)
def _read(path: Path, stamp: config.Stamp) -> Table:
    """Read a file once, as long as its `stamp` is the same."""
    data = config.read_json(path)
    try:
        _check(data, _KEYS)
        rows: Mapping[str, Row] = data.get("peers") or {}
        for row in rows.values():
            _check(row, _PEER_KEYS)
        if any(name in row for row in rows.values() for name in _SECRETS):
            _private(path)
        return _table(data, rows)
    except (AttributeError, TypeError, ValueError, BadInput) as error:
        raise BadConfig(f"{path}: {error}") from None


def _table(data: Row, rows: Mapping[str, Row]) -> Table:
    texts = tuple(data.get("allow") or ())
    origins = {url: origin(url) for url in rows}
    # A host with settings is one that may be asked.
    allow = addresses.allowed([*texts, *(origin.place for origin in origins.values())])
    common: dict[str, Any] = {"ca": data.get("ca"), "allow": allow}
    peers = {origins[url].peer: Peer(**{**common, **row}) for url, row in rows.items()}
    return Table(Peer(**common), peers, tuple(rows), texts)


def _private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ValueError(f"it holds passwords and has mode {mode:04o}: chmod 600 it")


def _check(data: Mapping[str, object], keys: tuple[str, ...]) -> None:
    for name, value in data.items():
        check_key(name, keys)
        _CHECKS.get(name, _text)(name, value)
    if "token" in data and "password" in data:
        raise ValueError("say token, or user and password, not both")


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")


def _token(name: str, value: object) -> None:
    if not (isinstance(value, str) and value.isascii() and value.isprintable()):
        raise ValueError("token is not what `rq token create` shows there")
    if not value or " " in value:
        raise ValueError("token is empty or holds a blank")


def _texts(name: str, value: object) -> None:
    if not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise ValueError(f"{name} is not a list of HOST, HOST:PORT or networks")


def _anything(name: str, value: object) -> None:
    """Take what is looked at elsewhere."""


def _yes_or_no(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is not true or false")


def _seconds(name: str, value: object) -> None:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 < value <= 86400
    ):
        raise ValueError("timeout is not a number of seconds, over 0, at most 86400")


_CHECKS = {
    "allow": _texts,
    "insecure": _yes_or_no,
    "peers": _anything,
    "timeout": _seconds,
    "token": _token,
}
