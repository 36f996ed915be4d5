"""One POST to an address that was checked, and the answer."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from rq.errors import Refused
from rq.webhook import address
from rq.webhook.outcome import Answer
from rq.webhook.settings import Settings

REDIRECTS = 3
_KEEP_METHOD = frozenset({307, 308})  # all others turn a POST into a GET
_BODY = 4096  # bytes of an answer that are read
_PLAIN = "/%:=&?~+!$,;'@()*[]"


def post(
    url: str, body: bytes, headers: Mapping[str, str], settings: Settings
) -> Answer:
    """Post; follow redirects on the same host. OSError or http.client.HTTPException
    when no answer came, Refused when none was asked for."""
    for _ in range(REDIRECTS + 1):
        answer = _post_once(url, body, headers, settings)
        if answer.status not in _KEEP_METHOD or not answer.location:
            return answer
        target = urljoin(url, answer.location)
        if not _may_follow(urlsplit(url), urlsplit(target)):
            return answer
        url = target
    return answer


def _may_follow(here: SplitResult, there: SplitResult) -> bool:
    safe = there.scheme == "https" or (here.scheme == there.scheme == "http")
    return safe and there.hostname == here.hostname


def _post_once(
    url: str, body: bytes, headers: Mapping[str, str], settings: Settings
) -> Answer:
    parts = urlsplit(url)
    host = _host(parts)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    sock = _connect(host, port, settings)
    try:
        if parts.scheme == "https":
            sock = _context(settings).wrap_socket(sock, server_hostname=host)
        line = http.client.HTTPConnection(host, port, timeout=settings.timeout)
        line.sock = sock  # so that nobody looks the name up again
        line.request("POST", _path(parts), body, {**headers, **_own(parts, host)})
        return _answer(line.getresponse())
    finally:
        sock.close()


def _host(parts: SplitResult) -> str:
    if not parts.hostname:
        raise Refused("the URL names no host")
    try:
        return parts.hostname.encode("idna").decode()
    except UnicodeError:
        raise Refused(f"{parts.hostname!r:.80} cannot be a host") from None


def _connect(host: str, port: int, settings: Settings) -> socket.socket:
    failed: OSError | None = None
    for family, where in address.find(host, port, settings.allow):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(settings.timeout)
        try:
            sock.connect(where)
        except OSError as error:
            sock.close()
            failed = error
        else:
            return sock
    raise failed or OSError("no address")


def _context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.ca is not None:
        context.load_verify_locations(settings.ca)
    return context


def _path(parts: SplitResult) -> str:
    path = quote(parts.path or "/", _PLAIN)
    return f"{path}?{quote(parts.query, _PLAIN)}" if parts.query else path


def _own(parts: SplitResult, host: str) -> dict[str, str]:
    """Return the headers that the URL asks for."""
    shown = f"[{host}]" if ":" in host else host
    own = {"Host": f"{shown}:{parts.port}" if parts.port else shown}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        own["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return own


def _answer(found: Any) -> Answer:
    found.read(_BODY)
    return Answer(
        status=found.status,
        reason=found.reason[:100],
        retry_after=found.getheader("Retry-After"),
        date=found.getheader("Date"),
        location=found.getheader("Location"),
    )
