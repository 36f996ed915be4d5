"""Sessions: who has signed in with a browser, until they sign out or it ends.

A session is a file `config/sessions/SHA256`, named after its cookie, so that all web
processes see the same ones; the cookie itself is nowhere on disk. What it stands on is
looked at with every request: the password of its user, or its token.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rq import config
from rq.access.logins import User
from rq.access.roles import Principal, Role
from rq.access.tokens import Tokens
from rq.config import files
from rq.errors import BadConfig, CannotRead
from rq.layout import Root

IDLE = 12 * 3600.0  # seconds without a request
LONGEST = 7 * 86400.0
EACH = 50  # sessions of one user
_TOUCH = 60.0  # seconds between two notes that a session is used


class How(StrEnum):
    """What somebody showed to sign in."""

    PASSWORD = "password"
    TOKEN = "token"
    ONCE = "once"  # the address that `rq open` prints


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is kept of a session; times in epoch seconds.

    `proof` is what it stands on: of a password a digest that changes with it, of a
    token its digest, nothing of an address of `rq open`. `uid` is the user of this
    machine who signed in, where the kernel named one: a browser shows its cookies for
    localhost to every port, so another user's server may have seen this one.
    """

    who: str
    how: How
    proof: str
    since: float
    until: float
    uid: int | None = None


class Sessions:
    """The sessions of a root."""

    def __init__(self, root: Root, users: Mapping[str, User], tokens: Tokens) -> None:
        self._dir = root.sessions
        self._users = users
        self._tokens = tokens

    def begin(
        self, who: str, how: How, proof: str, now: float, uid: int | None = None
    ) -> str:
        """Begin a session; return its cookie, which nobody had before."""
        files.make_dir(self._dir)
        self._sweep(who, now)
        cookie = secrets.token_hex(32)
        until = now + LONGEST
        session = Session(
            who=who, how=how, proof=proof, since=now, until=until, uid=uid
        )
        path = self._path(cookie)
        files.write_secret_state(path, asdict(session))
        os.utime(path, (now, now))
        return cookie

    def principal(
        self, cookie: str, now: float, uid: int | None = None
    ) -> Principal | None:
        """Return whose session a cookie is; None when it has ended or never was, or is
        shown by another user than the one who signed in."""
        path = self._path(cookie)
        session = _read(path)
        if session is None or session.uid not in (None, uid):
            return None
        principal = self._standing(session, now)
        seen = _seen(path)
        if principal is None or seen is None or _ended(session, seen, now):
            files.remove_link(path)
            return None
        if not seen <= now < seen + _TOUCH:
            _touch(path, now)
        return principal

    def stands(self, cookie: str, now: float) -> bool:
        """Return whether a session has not ended; to look so is no use of it."""
        path = self._path(cookie)
        session, seen = _read(path), _seen(path)
        if session is None or seen is None or _ended(session, seen, now):
            return False
        return self._standing(session, now) is not None

    def is_of(self, cookie: str, uid: int | None) -> bool:
        """Return whether a session was begun by this very user of the machine."""
        session = _read(self._path(cookie))
        return session is not None and uid is not None and session.uid == uid

    def end(self, cookie: str) -> str | None:
        """End a session in all processes; return whose it was."""
        path = self._path(cookie)
        session = _read(path)
        if session is None:
            return None
        files.remove_link(path)
        return session.who

    def _path(self, cookie: str) -> Path:
        digest = hashlib.sha256(cookie.encode("utf-8", "surrogatepass"))
        return self._dir / digest.hexdigest()

    def _standing(self, session: Session, now: float) -> Principal | None:
        """Return who it is, by what the config and the tokens say now."""
        match session.how:
            case How.PASSWORD:
                user = self._users.get(session.who)
                is_same = user is not None and user.proof == session.proof
                return user.principal if user is not None and is_same else None
            case How.TOKEN:
                token = self._tokens.by_digest(session.proof, now)
                return None if token is None else token.principal
            case How.ONCE:
                return Principal(name=session.who, role=Role.ADMIN)

    def _sweep(self, who: str, now: float) -> None:
        """Remove what has ended, and of one user all but the newest."""
        theirs = []
        for path, session, seen in self._all():
            if _ended(session, seen, now):
                files.remove_link(path)
            elif session.who == who:
                theirs.append((seen, path))
        theirs.sort(reverse=True)
        for _, path in theirs[EACH - 1 :]:
            files.remove_link(path)

    def _all(self) -> Iterator[tuple[Path, Session, float]]:
        for path in self._dir.iterdir():
            try:
                session, seen = _read(path), _seen(path)
            except CannotRead:
                continue
            if session is not None and seen is not None:
                yield path, session, seen
            elif not path.name.startswith("."):  # a file that is being written
                files.remove_link(path)


def _read(path: Path) -> Session | None:
    """Return the session in a file; None for none, or one that cannot be believed.

    CannotRead: it is not known; it is there still.
    """
    try:
        data: Any = config.read_json(path)
        return Session(
            who=str(data["who"]),
            how=How(data["how"]),
            proof=str(data["proof"]),
            since=float(data["since"]),
            until=float(data["until"]),
            uid=None if data.get("uid") is None else int(data["uid"]),
        )
    except CannotRead:
        raise
    except (BadConfig, KeyError, TypeError, ValueError):
        return None


def _ended(session: Session, seen: float, now: float) -> bool:
    return now >= session.until or now >= seen + IDLE or now < session.since - IDLE


def _seen(path: Path) -> float | None:
    """Return when a session was used last: the time of its file."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _touch(path: Path, now: float) -> None:
    try:
        os.utime(path, (now, now))
    except FileNotFoundError:  # it was ended just now
        return
