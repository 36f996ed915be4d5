"""Who may ask at all: address, host, origin and password; and what every answer forbids.

A browser that visits a hostile page must not be made to act here: a page of another
origin is refused by Sec-Fetch-Site or Origin, a name that an attacker points at this
machine by Host.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
from typing import Any
from urllib.parse import urlsplit

import falcon
from falcon.asgi import Request, Response

from rq import passwords
from rq.config.settings import RootConfig
from rq.errors import BadConfig
from rq.web.site import Site

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = (
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HEALTH = ("/livez", "/readyz")
_HEARD_OUT = 32 * 1024 * 1024  # bytes
_KNOWN_LIMIT = 1000  # logins that are remembered

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Guard:
    """Falcon's middleware: asked before every request, and after it."""

    def __init__(self, site: Site) -> None:
        config = site.config
        self._health = frozenset({*_HEALTH, *(site.url(one) for one in _HEALTH)})
        self._prefix = site.prefix + "/"
        self._hosts = _LOCAL | {config.host.lower(), config.addr.lower()}
        self._networks = networks(config)
        self._logins = Logins(config) if config.basic_auth else None

    async def process_request(self, req: Request, resp: Response) -> None:
        self._check_address(req)
        if req.path in self._health:
            return
        if self._logins is None:
            self._check_host(req)
        elif req.path.startswith(self._prefix):
            await self._logins.check(req)
        if req.method not in _SAFE:
            check_origin(req)

    async def process_response(
        self, req: Request, resp: Response, resource: Any, succeeded: bool
    ) -> None:
        headers = resp.headers
        for name, value in HEADERS:
            if name not in headers:
                resp.set_header(name, value)
        if not succeeded and req.method not in _SAFE:
            await _hear_out(req)

    def _check_address(self, req: Request) -> None:
        if not self._networks:
            return
        client = req.scope.get("client") or ("",)
        try:
            address = _plain(ipaddress.ip_address(client[0]))
        except ValueError:
            address = None
        if address is None or not any(address in one for one in self._networks):
            raise falcon.HTTPForbidden(
                description="This address is not among the allowed_ips."
            )

    def _check_host(self, req: Request) -> None:
        given = req.get_header("Host")
        if given is None or host_of(given) in self._hosts:
            return
        raise falcon.HTTPError(
            falcon.HTTP_421,
            description=(
                "Without a login RQ answers only to the names localhost, 127.0.0.1, "
                "[::1], and to host and addr of its config; a name that any page on "
                "the net can point here is refused."
            ),
        )


async def _hear_out(req: Request) -> None:
    """Read what a refused client still sends: most send all before they listen."""
    left = req.content_length or 0
    if 0 < left <= _HEARD_OUT and not req.get_header("Expect"):
        await req.stream.exhaust()


def check_config(config: RootConfig) -> None:
    """Raise BadConfig for a config that cannot be served safely."""
    networks(config)
    if config.basic_auth:
        Logins(config)
    elif not is_loopback(config.addr) and not config.open_without_auth:
        raise BadConfig(
            f"addr {config.addr} can be reached from other machines and there is no "
            "basic_auth: add it (`rq passwd` makes the line), or set addr to "
            '127.0.0.1, or say "open_without_auth": true'
        )


def is_loopback(addr: str) -> bool:
    if addr.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(addr.strip("[]")).is_loopback
    except ValueError:
        return False


def networks(config: RootConfig) -> list[Network]:
    """Return `allowed_ips` as networks; BadConfig names the wrong one."""
    try:
        return [ipaddress.ip_network(one, strict=False) for one in config.allowed_ips]
    except ValueError as error:
        raise BadConfig(
            f"allowed_ips: {error}; say 192.0.2.7 or 192.0.2.0/24"
        ) from None


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return ::ffff:192.0.2.7 as 192.0.2.7."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def host_of(header: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, _, port = text.rpartition(":")
    return (name if name and port.isdigit() else text).rstrip(".")


def check_origin(req: Request) -> None:
    """Refuse what a page of another origin makes a browser send.

    Programs such as curl send neither header and pass.
    """
    site = req.get_header("Sec-Fetch-Site")
    if site is not None:
        if site in ("same-origin", "none"):
            return
    else:
        origin = req.get_header("Origin")
        if origin is None:
            return
        if urlsplit(origin).netloc.lower() == (req.get_header("Host") or "").lower():
            return
    raise falcon.HTTPForbidden(
        description="A page of another site asked for this; it is refused."
    )


# ---- logins


class Logins:
    """The users of `basic_auth`."""

    def __init__(self, config: RootConfig) -> None:
        wanted = config.basic_auth or {}
        users = wanted.get("users")
        if not isinstance(users, dict) or not users:
            raise BadConfig('basic_auth: say {"users": {"NAME": "HASH"}}')
        self._users = {str(name): str(one) for name, one in users.items()}
        for name, one in self._users.items():
            passwords.check_form(name, one)
        realm = str(wanted.get("realm") or "RQ").replace("\\", "").replace('"', "")
        self._challenge = f'Basic realm="{realm}", charset="UTF-8"'
        self._key = os.urandom(32)
        self._known: dict[bytes, str] = {}  # digest of a header that was right: user
        self._one_at_a_time = asyncio.Lock()

    async def check(self, req: Request) -> None:
        """Note in the request who asks; 401 for strangers."""
        given = (req.get_header("Authorization") or "").encode()
        digest = hmac.digest(self._key, given, hashlib.sha256)
        user = self._known.get(digest)
        if user is None:
            user = await self._look_up(given)
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            self._known[digest] = user
        req.context.user = user

    async def _look_up(self, given: bytes) -> str:
        kind, _, coded = given.partition(b" ")
        try:
            text = base64.b64decode(coded.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = ""
        name, colon, password = text.partition(":")
        if kind.lower() != b"basic" or not colon:
            raise self._stranger()
        # A hash takes 16 MiB and a twentieth of a second: one guess at a time.
        async with self._one_at_a_time:
            fits = await asyncio.to_thread(
                passwords.fits, password, self._users.get(name)
            )
        if not fits:
            raise self._stranger()
        return name

    def _stranger(self) -> falcon.HTTPError:
        return falcon.HTTPUnauthorized(
            description="A name and a password are needed here.",
            challenges=[self._challenge],
        )


def warnings(config: RootConfig) -> list[str]:
    """Return what an operator should mend, a sentence each."""
    found = []
    users = (config.basic_auth or {}).get("users") or {}
    plain = [name for name, one in users.items() if not passwords.is_hash(str(one))]
    if plain:
        found.append(
            f"basic_auth holds plain passwords ({', '.join(sorted(plain))}): replace "
            "them by the hashes that `rq passwd` makes"
        )
    if not users and not is_loopback(config.addr):
        found.append(
            f"open_without_auth: whoever reaches {config.addr}:{config.port} can run "
            "programs here"
        )
    return found
