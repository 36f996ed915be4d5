"""The users of `basic_auth`: who has which password and role, and checking a login."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from rq.access.audit import network
from rq.access.guesses import Guesses
from rq.access.hashing import Hashing
from rq.access.roles import EVERY_QUEUE, Principal, Role
from rq.config import passwords
from rq.config.settings import RootConfig
from rq.errors import BadConfig

_REMEMBERED = 1000  # logins, and addresses they came from
_TRUSTED, _STRANGE = -1.0, 0.0  # suspicion of addresses without wrong guesses
_LONGEST_NAME = 200  # characters; it is part of idempotency keys
_KEYS = ("password", "role", "queues", "sends")

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody with a password."""

    name: str
    stored: str  # the hash, or the password itself
    role: Role = Role.ADMIN
    queues: tuple[str, ...] = EVERY_QUEUE
    sends: tuple[str, ...] = ()  # beyond what the role allows

    @property
    def principal(self) -> Principal:
        return Principal(
            name=self.name, role=self.role, queues=self.queues, sends=self.sends
        )

    @property
    def proof(self) -> str:
        """Return what is another when the password is; a session holds it."""
        return hashlib.sha256(f"{self.name}\n{self.stored}".encode()).hexdigest()


class Logins:
    """Checks names and passwords, and remembers those that were right."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.users = users
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, User] = OrderedDict()
        self._from: OrderedDict[str, None] = OrderedDict()  # where right ones came from
        self._checks: dict[tuple[bytes, str], asyncio.Task[User | None]] = {}
        self._guesses = Guesses()
        self._hashing = Hashing()

    async def check(
        self, name: str, password: str, address: str, now: float
    ) -> User | None:
        """Return the user with this name and password, None when there is none.

        TooOften: this address has guessed too often. A login that was right once is
        answered at once, whatever others guess.
        """
        digest = self._digest(name, password)
        if user := self._right.get(digest):
            self._right.move_to_end(digest)
            return user
        # A program that opens many connections with one password is one guess.
        key = digest, network(address)
        check = self._checks.get(key)
        if check is None:
            check = asyncio.create_task(self._look_up(name, password, key, now))
            self._checks[key] = check
            check.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(check)

    async def _look_up(
        self, name: str, password: str, key: tuple[bytes, str], now: float
    ) -> User | None:
        digest, address = key
        # Names are counted by a digest of fixed size: a name may be long.
        name_key = self._digest(name, "")
        user = self.users.get(name)
        guesses = self._guesses.take(address, name_key, now)
        clean = _TRUSTED if address in self._from else _STRANGE
        is_right = False
        try:
            stored = None if user is None else user.stored
            is_right = await self._hashing.fits(password, stored, guesses or clean)
        finally:
            if is_right:
                self._guesses.give_back(address, name_key, now)
        if user is None or not is_right:
            return None
        _remember(self._right, digest, user)
        _remember(self._from, address, None)
        return user

    def _ended(self, key: tuple[bytes, str], check: asyncio.Task[User | None]) -> None:
        del self._checks[key]
        if not check.cancelled():
            check.exception()  # marks it as read: the client may have gone

    def _digest(self, name: str, password: str) -> bytes:
        text = f"{len(name)}\n{name}{password}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)


def _remember(latest: OrderedDict[K, V], key: K, value: V) -> None:
    latest[key] = value
    latest.move_to_end(key)
    if len(latest) > _REMEMBERED:
        latest.popitem(last=False)


# ---- the setting


def users(config: RootConfig) -> dict[str, User]:
    """Return the users of a config by name, none without basic_auth; BadConfig says
    what is wrong with one."""
    if not config.basic_auth:
        return {}
    given = config.basic_auth.get("users")
    if not isinstance(given, dict) or not given:
        raise BadConfig('basic_auth: say {"users": {"NAME": "HASH"}}')
    return {name: _user(name, value) for name, value in given.items()}


def _user(name: str, value: object) -> User:
    # A colon would end it in a header, and a worker is called NAME/LABEL.
    is_long = len(name) > _LONGEST_NAME
    if not name or is_long or not name.isprintable() or ":" in name or "/" in name:
        raise BadConfig(
            f"basic_auth: {name!r:.80} cannot be a user's name: it holds a colon, a "
            f"slash, what cannot be shown, or over {_LONGEST_NAME} characters"
        )
    fields = value if isinstance(value, dict) else {"password": value}
    for key in fields:
        if key not in _KEYS:
            raise BadConfig(
                f"basic_auth: {key!r:.40} of {name} is not one of {', '.join(_KEYS)}"
            )
    stored = fields.get("password", "")
    if isinstance(stored, int) and not isinstance(stored, bool):
        stored = str(stored)
    if not isinstance(stored, str):
        raise BadConfig(f"basic_auth: the password of {name} is not text")
    passwords.check_form(name, stored)
    return User(
        name=name,
        stored=stored,
        role=_role(name, fields),
        queues=_patterns(name, fields, "queues", EVERY_QUEUE),
        sends=_patterns(name, fields, "sends", ()),
    )


def _role(name: str, fields: Mapping[str, object]) -> Role:
    try:
        return Role(str(fields.get("role", Role.ADMIN)))
    except ValueError:
        raise BadConfig(
            f"basic_auth: {fields['role']!r:.40}, the role of {name}, is not one of "
            f"{', '.join(Role)}"
        ) from None


def _patterns(
    name: str, fields: Mapping[str, object], key: str, default: tuple[str, ...]
) -> tuple[str, ...]:
    patterns = fields.get(key, list(default))
    if not isinstance(patterns, list) or not all(
        isinstance(pattern, str) and pattern for pattern in patterns
    ):
        raise BadConfig(
            f'basic_auth: the {key} of {name} are not a list such as ["mail-*"]'
        )
    return tuple(patterns)
