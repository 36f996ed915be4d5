"""One POST to an address that was checked, and the answer."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from rq import names
from rq.errors import Refused
from rq.outbound import addresses, connection
from rq.outbound.addresses import Internal
from rq.webhook import settings as urls
from rq.webhook.outcome import Answer
from rq.webhook.settings import Settings

REDIRECTS = 3
_KEEP_METHOD = frozenset({307, 308})  # all others turn a POST into a GET
_BODY = 4096  # bytes of an answer that are read
_PLAIN = "/%:=&?~+!$,;'@()*[]"


def post(
    url: str, body: bytes, headers: Mapping[str, str], settings: Settings
) -> Answer:
    """Post; follow redirects to the same origin. OSError or http.client.HTTPException
    when no answer came, Refused when none was asked for."""
    for _ in range(REDIRECTS + 1):
        answer = _post_once(url, body, headers, settings)
        if answer.status not in _KEEP_METHOD or not answer.location:
            return answer
        target = _same_origin(url, answer.location)
        if target is None:
            return answer
        url = target
    return answer


def _same_origin(url: str, location: str) -> str | None:
    """Return where a redirect leads; None when that is another host."""
    try:
        target = urljoin(url, location)
        same = urls.origin(urlsplit(url)) == urls.origin(urlsplit(target))
    except ValueError:
        return None  # it is no address
    return target if same else None


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
        line.auto_open = 0  # a new connection would look the name up again
        line.sock = sock
        line.request(
            "POST", _path(parts), body, {**headers, **_own_headers(parts, host)}
        )
        return _answer(line.getresponse())
    finally:
        sock.close()


def _host(parts: SplitResult) -> str:
    if not parts.hostname:
        raise Refused("the URL names no host")
    try:
        names.authority(parts.netloc.rpartition("@")[2])
        return parts.hostname.encode("idna").decode()
    except ValueError:  # UnicodeError is one
        raise Refused(f"{parts.hostname!r:.80} cannot be a host") from None


def _connect(host: str, port: int, settings: Settings) -> socket.socket:
    try:
        places = addresses.find(host, port, settings.allow)
    except Internal as error:
        raise Internal(f"{error}; config/webhooks.json may allow it") from None
    return connection.connect(places, settings.timeout)


def _context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.ca is not None:
        context.load_verify_locations(settings.ca)
    return context


def _path(parts: SplitResult) -> str:
    path = quote(parts.path or "/", _PLAIN)
    return f"{path}?{quote(parts.query, _PLAIN)}" if parts.query else path


def _own_headers(parts: SplitResult, host: str) -> dict[str, str]:
    """Return the headers that the URL asks for."""
    headers = {"Host": names.host_port(host, parts.port or None)}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return headers


def _answer(response: http.client.HTTPResponse) -> Answer:
    response.read(_BODY)
    return Answer(
        status=response.status,
        retry_after=response.getheader("Retry-After"),
        date=response.getheader("Date"),
        location=response.getheader("Location"),
    )
