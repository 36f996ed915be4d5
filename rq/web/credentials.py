"""The credentials of a request: a token, a name and a password, or a session."""

from __future__ import annotations

import base64
import binascii
import functools
import time

from falcon.asgi import Request

from rq.access import attempt_tokens
from rq.access.gate import Asker
from rq.access.logins import Logins, User, users
from rq.access.roles import Principal
from rq.access.sessions import Sessions
from rq.access.tokens import Tokens
from rq.errors import NotKnown
from rq.web.origin import asker_of
from rq.web.site import Site

_MOST_COOKIES = 8
WRONG_LOGIN = "The name or the password is wrong."
WRONG_TOKEN = "This token is not valid: it was revoked, has ended, or never was one."


class Credentials:
    """The tokens, users and sessions of a root."""

    def __init__(self, site: Site) -> None:
        config = site.config
        # Cookies are shared by all ports of a host, so the name holds the port.
        self.cookie = f"rq_login_{config.port}"
        self.tokens = Tokens(site.root)
        self.logins = Logins(users(config))
        self._root = site.root
        self.sessions = Sessions(site.root, self.logins.users, self.tokens)

    async def principal(self, req: Request) -> Principal | None:
        """Return who asks; None for a request that shows nothing.

        NotKnown: what it shows is wrong. TooOften: its address has guessed too often.
        """
        kind, _, value = (req.get_header("Authorization") or "").partition(" ")
        if kind.lower() == "bearer":
            principal = self.by_token(value.strip())
            req.context.stands = functools.partial(self._stands, value.strip())
            return principal
        if kind and self.logins.users:
            name, password = _basic(kind, value)
            return (await self.by_password(req, name, password)).principal
        return self._by_cookie(req)

    def _by_cookie(self, req: Request) -> Principal | None:
        """Return whose session it is; None for none, or one that has ended."""
        if not (cookies := self.shown_cookies(req)):
            return None
        uid = asker_of(req).user
        cookie, principal = self._first_standing(cookies, uid)
        req.context.has_session = principal is not None
        if principal is not None:  # else it is not what lets them in
            req.context.stands = functools.partial(self._goes_on, cookie)
        return principal

    def shown_cookies(self, req: Request) -> list[str]:
        """Return the cookies of sessions that a request shows.

        There may be several: another server of this host can plant one of this name,
        for a longer path, and the browser sends that first.
        """
        if not req.get_header("Cookie"):
            return []
        return (req.get_cookie_values(self.cookie) or [])[:_MOST_COOKIES]

    def _first_standing(
        self, cookies: list[str], uid: int | None
    ) -> tuple[str, Principal | None]:
        """Return the cookie that counts, and whose session it is: sessions of the very
        user who asks come first."""
        now = time.time()
        mine = sorted(cookies, key=lambda cookie: not self.sessions.is_of(cookie, uid))
        for cookie in mine:
            if principal := self.sessions.principal(cookie, now, uid):
                return cookie, principal
        return mine[0], None

    def _stands(self, secret: str) -> bool:
        return self._holder(secret) is not None

    def _goes_on(self, cookie: str) -> bool:
        return self.sessions.stands(cookie, time.time())

    def by_token(self, secret: str) -> Principal:
        """Return whose token it is; NotKnown for a wrong one."""
        principal = self._holder(secret)
        if principal is None:
            raise NotKnown(WRONG_TOKEN)
        return principal

    def _holder(self, secret: str) -> Principal | None:
        """Return whose token it is: one that was given for good, or an attempt's."""
        principal = self.tokens.principal(secret, time.time())
        return principal or attempt_tokens.of_attempt(self._root, secret)

    async def by_password(self, req: Request, name: str, password: str) -> User:
        """Return whose login it is; NotKnown for a wrong one, TooOften to wait."""
        if name in self.logins.users:
            # For the log of what was refused; people also type passwords here.
            req.context.claimed = name
        place = _place(asker_of(req))
        user = await self.logins.check(name, password, place, time.monotonic())
        if user is None:
            raise NotKnown(WRONG_LOGIN)
        return user


def _place(asker: Asker) -> str:
    """Return what guesses are counted by: users of this machine share its address, and
    one of them must not slow the others, nor the clients of a proxy."""
    return asker.address if asker.uid is None else f"uid {asker.uid}"


def _basic(kind: str, coded: str) -> tuple[str, str]:
    """Return name and password; NotKnown for a header that is not of this kind."""
    try:
        text = base64.b64decode(coded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    name, colon, password = text.partition(":")
    if kind.lower() != "basic" or not colon:
        raise NotKnown("A name and a password are needed here, or a token.")
    return name, password
