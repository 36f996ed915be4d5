"""The settings of webhooks: config/webhooks.json and config/webhook.secret, checked."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from rq import config
from rq.builtin.webhook import signing
from rq.config import files
from rq.config.values import check_key, one_of
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.outbound import addresses
from rq.outbound.addresses import Allowed
from rq.proc import locks
from rq.words.nesting import Json

TIMEOUT = 20.0  # seconds for a whole try
_RANDOM = 32  # bytes of a new key
_KEYS = ("allow", "ca", "urls")
_URL_KEYS = ("secrets", "body", "timeout")
_BODIES = ("json", "form")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How webhooks are posted to a URL."""

    secrets: tuple[str, ...]
    body: str = "json"
    timeout: float = TIMEOUT
    allow: Allowed = field(default_factory=Allowed)
    ca: str | None = None  # file of further certificate authorities


def read(root: Root, url: str) -> Settings:
    """Return what is set for a URL; BadConfig names the file and the key."""
    path = root.webhooks
    data = config.read_json(path) if path.exists() else {}
    try:
        _check_keys(data, _KEYS)
        of_urls = _of_urls(data.get("urls"))
        special = _of_url(of_urls, url)
        _check_keys(special, _URL_KEYS)
        if any(entry.get("secrets") for entry in of_urls.values()):
            _private(path)
        return Settings(
            secrets=_texts(special.get("secrets")) or common_secrets(root),
            body=one_of(_BODIES)(special.get("body", "json")),
            timeout=_seconds(special.get("timeout", TIMEOUT)),
            allow=addresses.allowed(_texts(data.get("allow"))),
            ca=_file(data.get("ca")),
        )
    except (AttributeError, TypeError, ValueError, BadInput) as error:
        raise BadConfig(f"{path}: {error}") from None


def common_secrets(root: Root) -> tuple[str, ...]:
    """Return the secrets of this installation, newest first; made when there is none."""
    path = root.webhook_secret
    if not path.exists():
        _make_secret(root)
    _private(path)
    lines = (line.strip() for line in path.read_text("utf-8", "replace").split("\n"))
    secrets = tuple(line for line in lines if line and not line.startswith("#"))
    if not secrets:
        raise BadConfig(
            f"{path} holds no secret: remove the file, and RQ makes a new one"
        )
    return secrets


def _make_secret(root: Root) -> None:
    """Make it once, however many begin at the same time."""
    turn = locks.lock_waiting(root.config_dir / "webhook.lock")
    try:
        if not root.webhook_secret.exists():
            secret = signing.secret_of(os.urandom(_RANDOM))
            files.write_secret(root.webhook_secret, f"{secret}\n")
    finally:
        os.close(turn)


def _private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadConfig(f"{path} holds secrets and has mode {mode:04o}: chmod 600 it")


def _of_urls(value: Json) -> Mapping[str, Mapping[str, Json]]:
    """Return what is set for each URL; ValueError when it is no object of objects."""
    if not value:
        return {}
    if not isinstance(value, dict):
        raise ValueError("urls is not an object {URL: {…}}")
    for url, entry in value.items():
        if not isinstance(entry, dict):
            raise ValueError(f"urls: {url!r:.60} is not an object")
    return value


def _of_url(of_urls: Mapping[str, Mapping[str, Json]], url: str) -> Mapping[str, Json]:
    """Return what is set for the longest of the URLs that `url` lies below."""
    fitting = [prefix for prefix in of_urls if lies_below(url, prefix)]
    return of_urls[max(fitting, key=len)] if fitting else {}


def lies_below(url: str, prefix: str) -> bool:
    """Return whether `url` is `prefix` or something below it, on the same host.

    >>> [lies_below("http://h/a/b", p) for p in ("http://h/a", "http://h/", "http://h/ab")]
    [True, True, False]
    """
    lower, upper = urlsplit(url), urlsplit(prefix)
    if origin(lower) != origin(upper):
        return False
    path, top = lower.path or "/", upper.path or "/"
    return path == top or path.startswith(top if top.endswith("/") else f"{top}/")


def origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an URL."""
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual


def _check_keys(data: Mapping[str, Json], keys: tuple[str, ...]) -> None:
    for name in data:
        check_key(name, keys)


def _texts(value: Json) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ValueError(f"{value!r:.60} is not a list of texts")


def _file(value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"ca {value!r:.60} is not the name of a file")


def _seconds(value: Json) -> float:
    if isinstance(value, int | float) and 0 < value <= 120:
        return float(value)
    raise ValueError(f"timeout {value!r:.60} is not between 0 and 120 seconds")
