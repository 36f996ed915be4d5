"""The gate in front of every request: its spelling, who asks, and whether they may; and
what every answer forbids.

Who asks is decided before the request is routed; what they may, once its route is known.
A browser that visits a hostile page must not be made to act here: a page of another
origin is refused by Sec-Fetch-Site or Origin, a name that an attacker points at this
machine by Host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from falcon.asgi import Request, Response

from rq.access import logins
from rq.access.gate import Asker, Gate
from rq.access.roles import Principal, Role
from rq.config.settings import RootConfig
from rq.config.values import is_loopback
from rq.errors import BadConfig
from rq.web import own, signin
from rq.web.connection import ADMITTED
from rq.web.credentials import Credentials
from rq.web.origin import SAFE, asker_of, check_origin, check_spelling
from rq.web.pages.page import CONTENT_POLICY
from rq.web.rights import check_guarded, check_right, is_about_own
from rq.web.routes import CLOSED, Right
from rq.web.site import Site

HEADERS = (
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),  # no answer is for the next user of a shared browser
)
HEARD_OUT = 32 * 1024 * 1024  # bytes
WEBHOOK_ID = "webhook-id"  # as `rq.builtin.webhook.signing` sends it
_HEALTH = ("/livez", "/readyz")


class Guard:
    """Falcon's middleware: asked before every request, and after it."""

    def __init__(self, site: Site, credentials: Credentials) -> None:
        self._health = frozenset({*_HEALTH, *(site.url(path) for path in _HEALTH)})
        self._signing = frozenset(site.url(path) for path in signin.PATHS)
        self._site = site
        self._gate = Gate(site.config, os.getuid())
        self._credentials = credentials

    async def process_request(self, req: Request, resp: Response) -> None:
        """Authenticate the client, before the request is routed."""
        req.context.principal, req.context.trusted_relay = None, False
        check_spelling(req)
        asker = asker_of(req)
        self._gate.check_address(asker)
        req.context.trusted_relay = self._gate.trusts_relay(asker)
        if req.path in self._health:
            return
        req.context.may_sign_in = True
        if req.path not in self._signing:
            req.context.principal = await self._principal(req, asker)
            _admit(req)
        if req.method not in SAFE:
            check_origin(req)

    async def process_resource(
        self, req: Request, resp: Response, resource: object, params: Mapping[str, str]
    ) -> None:
        """Decide whether the route that was found is theirs to use."""
        rights: Mapping[str, Right] = getattr(resource, "rights", {})
        is_open = req.path in self._health or req.path in self._signing
        if req.context.principal is None and is_open:
            return
        # A method that the route does not have is answered 405 to those who may look.
        default = CLOSED if not rights else Right(role=Role.VIEWER, shared=True)
        right = rights.get(req.method, default)
        req.context.role = right.role
        check_right(req.context.principal, right, params)
        check_guarded(req, right, params)
        if is_about_own(req.context.principal, right):
            name, msg_id = params["name"], params["msg_id"]
            await own.check(self._site, req.context.principal, name, msg_id)

    async def process_response(
        self, req: Request, resp: Response, resource: object, succeeded: bool
    ) -> None:
        headers = resp.headers
        for name, value in HEADERS:
            if name not in headers:
                resp.set_header(name, value)
        if not succeeded and req.method not in SAFE:
            await _hear_out(req)

    async def _principal(self, req: Request, asker: Asker) -> Principal:
        """Return who asks: by the credentials, else by what the kernel says.

        RQ posts webhooks as its own user, who is an admin here, to the addresses that
        producers give. So what a webhook asks of the web of its own root is what a
        producer may ask: the header is sent with each, and no producer can leave it out.
        """
        principal = await self._credentials.principal(req)
        if principal is not None:
            return principal
        principal = self._gate.admit(asker)
        is_told = req.get_header(WEBHOOK_ID) is not None
        return principal.at_most_producing() if is_told else principal


def _admit(req: Request) -> None:
    """Tell the connection that it carries no stranger, so that it need not give way."""
    if admitted := req.scope.get(ADMITTED):
        admitted()


async def _hear_out(req: Request) -> None:
    """Read the rest of a refused request: most clients send all before they read."""
    left = req.content_length or 0
    if 0 < left <= HEARD_OUT and not req.get_header("Expect"):
        await req.stream.exhaust()


def check_config(config: RootConfig, has_tokens: bool = False) -> None:
    """Raise BadConfig for a config that cannot be served safely."""
    Gate(config, os.getuid())
    if config.basic_auth:
        logins.users(config)
    elif not (is_loopback(config.addr) or config.open_without_auth or has_tokens):
        raise BadConfig(
            f"addr {config.addr} can be reached from other machines and there is "
            "neither basic_auth nor a token: add one (`rq passwd` makes the line, `rq "
            "token create` a token), or set addr to 127.0.0.1, or say "
            '"open_without_auth": true'
        )
