"""One request to any URL of the web, on a connection of its own, to an address that was
judged. A redirect is an answer as others are: who asks may ask where it leads."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

from rq import names
from rq.errors import BadInput
from rq.outbound import addresses, connection, peers
from rq.outbound.addresses import Allowed, Internal
from rq.outbound.connection import Connection

_PLAIN = "/%:=&?~+!$,;'@()*[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where a request may go, and how long that may take."""

    allow: Allowed
    mend: Callable[[str], str]  # how a host that is an internal one could be allowed
    timeout: float  # seconds, for the connection and between two bytes
    ca: str | None = None  # file of further certificate authorities
    file: str = ""  # of the config, which names it


class Page:
    """An answer; its body is read as it comes."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        head = line.head()
        self.status = head.status
        self.headers = head.headers  # their names in lower case

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end."""
        return self._line.read(size)

    def close(self) -> None:
        self._line.close()


def ask(
    method: str,
    url: str,
    rules: Rules,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Page:
    """Return the answer of a URL. BadInput when it is no URL of the web, Internal when
    its host may not be asked, OSError when there is no answer."""
    parts = urlsplit(url)
    line = _connected(parts, rules)
    sent_headers = {**(headers or {}), **_own_headers(parts), "Connection": "close"}
    try:
        line.begin(method, _path(parts), body, sent_headers)
        return Page(line)
    except BaseException:
        line.close()
        raise


def _connected(parts: SplitResult, rules: Rules) -> Connection:
    usual = peers.USUAL.get(parts.scheme)
    if usual is None or not parts.hostname:
        raise BadInput(f"{parts.geturl()!r:.120} is no address of the web")
    host = _host(parts)
    try:
        places = addresses.find(host, parts.port or usual, rules.allow)
    except Internal as error:
        raise Internal(f"{error}; {rules.mend(host)}") from None
    sock = connection.connect(places, rules.timeout)
    if parts.scheme == "https":
        context = connection.tls(rules.ca, rules.file)
        sock = connection.secured(sock, context, host)
    return Connection(sock, rules.timeout)


def _host(parts: SplitResult) -> str:
    try:
        names.authority(parts.netloc.rpartition("@")[2])
        return str(parts.hostname).encode("idna").decode()
    except ValueError:  # UnicodeError is one
        raise BadInput(f"{parts.hostname!r:.80} cannot be a host") from None


def _path(parts: SplitResult) -> str:
    path = quote(parts.path or "/", _PLAIN)
    return f"{path}?{quote(parts.query, _PLAIN)}" if parts.query else path


def _own_headers(parts: SplitResult) -> dict[str, str]:
    """Return the headers that the URL asks for."""
    headers = {
        "Host": names.host_port(_host(parts), parts.port or None),
        "Accept-Encoding": "identity",
    }
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return headers
