"""The users of `basic_auth`: who has which password and role, and checking a login.

A client may guess a password ten times at once, then once each ten seconds. An address that
guesses is slowed, whatever name it tries. A name that many addresses guess at leaves each
of them one guess at once, so that a client who knows the password is let in at the first
try, wherever the others are.

A hash takes 16 MiB and a twentieth of a second on purpose: passwords are compared in a
thread of their own. Nothing else waits for it, and it never uses more than one core.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import hmac
import itertools
import os
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from rq.access.audit import network
from rq.access.roles import EVERY_QUEUE, Principal, Role
from rq.config import passwords
from rq.config.settings import RootConfig
from rq.errors import BadConfig, TooOften

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


# ---- how often a password may be guessed


AT_ONCE = 10  # wrong guesses of an address
OF_A_NAME = 50  # wrong guesses of a name until it counts as attacked
PAUSE = 10.0  # seconds that pay for one more guess
MOST = 10_000  # addresses, and names, that are remembered


class Guesses:
    """Counts guesses; memory is bounded, however many addresses and names there are."""

    def __init__(self) -> None:
        self._addresses = Levels()
        self._names = Levels()

    def take(self, address: Hashable, name: Hashable, now: float) -> float:
        """Count a guess before it is tried; TooOften when it comes too soon.

        Return how many guesses of this address were counted lately.
        """
        level = self._addresses.level(address, now)
        attacked = self._names.level(name, now) >= OF_A_NAME
        over = level - ((1 if attacked else AT_ONCE) - 1)
        if over > 0:
            raise TooOften(
                "Too many wrong logins came from this address: wait, then try again.",
                over * PAUSE,
            )
        self._addresses.add(address, 1, now)
        self._names.add(name, 1, now)
        return level

    def give_back(self, address: Hashable, name: Hashable, now: float) -> None:
        """Count a guess no more: it was right, or was never tried."""
        self._addresses.add(address, -1, now)
        self._names.add(name, -1, now)


class Levels:
    """A number for each key, which sinks by one in each pause."""

    def __init__(self) -> None:
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, key: Hashable, now: float) -> float:
        level, since = self._levels.get(key, (0.0, now))
        return max(0.0, level - max(0.0, now - since) / PAUSE)

    def add(self, key: Hashable, number: int, now: float) -> None:
        level = self.level(key, now) + number
        self._levels.pop(key, None)
        if level > 0:
            self._levels[key] = (level, now)
        if len(self._levels) > MOST:
            self._levels.popitem(last=False)


# ---- the order of those whose passwords are compared


WAITING = 32  # guesses that wait at the same time

Turn = tuple[float, int, asyncio.Future[None]]


class Hashing:
    """Compares one password at a time, those of the least suspicious askers first.

    Of equals the newest is first: when more come than can be served, those who came
    last are still there to be answered.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "hashing")
        self._is_busy = False
        self._waiting: list[Turn] = []  # in the order of their turns
        self._numbers = itertools.count()

    async def fits(self, password: str, stored: str | None, suspicion: float) -> bool:
        """Return whether a password is the stored one; TooOften when too many wait."""
        await self._turn(suspicion)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._pool, passwords.fits, password, stored
            )
        finally:
            self._next()

    async def _turn(self, suspicion: float) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        future = asyncio.get_running_loop().create_future()
        bisect.insort(self._waiting, (suspicion, -next(self._numbers), future))
        if len(self._waiting) > WAITING:
            _, _, last = self._waiting.pop()
            last.set_exception(
                TooOften(
                    "Too many people sign in at the same time; try again in a moment.",
                    5.0,
                )
            )
        await future

    def _next(self) -> None:
        while self._waiting:
            _, _, future = self._waiting.pop(0)
            if not future.done():
                future.set_result(None)
                return
        self._is_busy = False

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


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
