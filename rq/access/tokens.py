"""Tokens: secrets for programs, each with a role, queues and perhaps an end.

`config/tokens.json` holds the SHA-256 of each secret, never the secret. The secret has 256
random bits, so one round of a fast hash is enough and nobody can guess one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from rq import config
from rq.access.roles import EVERY_QUEUE, Principal, Role
from rq.config import files
from rq.errors import BadConfig, BadInput, CannotRead
from rq.layout import Root
from rq.proc import locks

PREFIX = "rq_"  # tools that search repositories for secrets find it by this
MOST = 1000
_LONGEST_USER = 100  # characters
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token; times in epoch seconds."""

    name: str
    sha256: str
    role: Role
    queues: tuple[str, ...] = EVERY_QUEUE
    sends: tuple[str, ...] = ()  # patterns of queues, beyond what its role allows
    created: float
    created_by: str
    end: float | None = None
    user: str = ""  # whose it is; "": of a user of its own, who has its name

    def ended(self, now: float) -> bool:
        return self.end is not None and now >= self.end

    @property
    def principal(self) -> Principal:
        # No name of a user holds a colon, so a token is never taken for a user.
        name = f"token:{self.name}"
        return Principal(
            name=name,
            role=self.role,
            queues=self.queues,
            sends=self.sends,
            of=self.user,
        )


class Tokens:
    """The tokens of a root, as the file says now: it is read again when it changed."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._stamp: config.Stamp | None = None
        self._by_digest: Mapping[str, Token] = {}

    def principal(self, secret: str, now: float) -> Principal | None:
        """Return who holds `secret`; None for a secret that no valid token has."""
        token = self.by_digest(digest_of(secret), now)
        return None if token is None else token.principal

    def by_digest(self, digest: str, now: float) -> Token | None:
        """Return the token with a digest, unless it has ended or was revoked. CannotRead.

        The digest of a guess says nothing about how near the guess was, so the time that
        this takes tells nothing either.
        """
        self._refresh()
        token = self._by_digest.get(digest)
        return None if token is None or token.ended(now) else token

    def _refresh(self) -> None:
        # The stamp comes first: a file replaced after it is read again at the next call.
        stamp = config.stamp(self._root.tokens)
        if stamp == self._stamp:
            return
        try:
            self._by_digest = {token.sha256: token for token in read(self._root)}
        except CannotRead:
            # Not known which tokens there are; the next request looks again.
            log.warning("%s cannot be read just now", self._root.tokens)
            raise
        except BadConfig as error:
            self._by_digest = {}
            log.error("%s", error)
        self._stamp = stamp


def digest_of(secret: str) -> str:
    """Return what the file holds of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def read(root: Root) -> list[Token]:
    """Return the tokens of a root, those that have ended too.

    BadConfig for a file that cannot be used: then no token is accepted. CannotRead when
    that is not known.
    """
    try:
        root.tokens.lstat()
    except FileNotFoundError:
        return []
    try:
        rows = config.read_json(root.tokens).get("tokens")
    except CannotRead:
        raise
    except BadConfig as error:
        raise _damaged(root, str(error)) from None
    if not isinstance(rows, list):
        raise _damaged(root, "it has no list `tokens`")
    tokens = []
    for row in rows:
        try:
            tokens.append(_token(row))
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(root, f"an entry is no token: {error!r:.100}") from None
    return tokens


def exist(root: Root) -> bool:
    """Return whether there is a token; a damaged file has none. CannotRead."""
    try:
        return bool(read(root))
    except CannotRead:
        raise
    except BadConfig:
        return False


def _damaged(root: Root, why: str) -> BadConfig:
    return BadConfig(
        f"{root.tokens} cannot be used, so no token is accepted: {why}. Mend it, or "
        "remove it and make new tokens with `rq token create`"
    )


def _token(row: object) -> Token:
    if not isinstance(row, dict):
        raise TypeError("it is no object")
    end = row.get("end")
    token = Token(
        name=row["name"],
        sha256=row["sha256"],
        role=Role(row["role"]),
        queues=_patterns(row["queues"]),
        sends=_patterns(row.get("sends", [])),
        created=float(row["created"]),
        created_by=str(row["created_by"]),
        end=None if end is None else float(end),
        user=str(row.get("user", "")),
    )
    if not _NAME.fullmatch(token.name) or not _DIGEST.fullmatch(token.sha256):
        raise ValueError("its name or its sha256")
    return token


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(pattern, str) and pattern for pattern in value
    ):
        raise ValueError("its queues")
    return tuple(value)


def create(root: Root, token: Token) -> None:
    """Add a token; BadInput when its name is taken or cannot be one."""
    _check(token)

    def add(tokens: list[Token]) -> list[Token]:
        if any(other.name == token.name for other in tokens):
            raise BadInput(
                f"there is a token {token.name} already: `rq token revoke {token.name}` "
                "ends it"
            )
        if len(tokens) >= MOST:
            raise BadInput(f"there are {MOST} tokens: revoke some first")
        return [*tokens, token]

    _change(root, add)


def _check(token: Token) -> None:
    if not _NAME.fullmatch(token.name):
        raise BadInput(
            f"{token.name!r:.80} cannot be the name of a token: 1 to 64 letters, digits "
            "and ._@-, the first a letter or a digit"
        )
    if not all(
        pattern.isprintable() and pattern for pattern in (*token.queues, *token.sends)
    ):
        raise BadInput("a pattern of queues is text that can be shown, say 'mail-*'")
    if not token.user.isprintable() or len(token.user) > _LONGEST_USER:
        raise BadInput(
            f"{token.user!r:.80} cannot be a user: say up to {_LONGEST_USER} characters "
            "that can be shown"
        )


def revoke(root: Root, name: str) -> None:
    """Remove a token for good; BadInput when there is none of that name."""

    def remove(tokens: list[Token]) -> list[Token]:
        kept = [token for token in tokens if token.name != name]
        if len(kept) == len(tokens):
            raise BadInput(f"there is no token {name!r:.80}; `rq token ls` lists them")
        return kept

    _change(root, remove)


def new_secret() -> str:
    """Return the secret of a new token."""
    return PREFIX + secrets.token_hex(32)


def _change(root: Root, change: Callable[[list[Token]], list[Token]]) -> None:
    """Write what `change` makes of the tokens; two who change wait for each other."""
    lock = locks.lock_waiting(root.config_dir / "tokens.lock")
    try:
        rows = [_row(token) for token in change(read(root))]
        files.write_secret_state(root.tokens, {"tokens": rows})
    finally:
        os.close(lock)


def _row(token: Token) -> dict[str, object]:
    row = {**asdict(token), "queues": list(token.queues), "sends": list(token.sends)}
    for name in ("sends", "user"):
        if not row[name]:
            del row[name]  # an older RQ reads the file as well
    return row


def warnings(root: Root, now: float) -> list[str]:
    """Return what an operator should know of the tokens, a sentence each."""
    try:
        tokens = read(root)
    except BadConfig as error:
        return [str(error)]
    ended = sorted(token.name for token in tokens if token.ended(now))
    if not ended:
        return []
    several = len(ended) > 1
    return [
        f"the token{'s' if several else ''} {', '.join(ended)} "
        f"{'have' if several else 'has'} ended: `rq token revoke NAME` removes "
        f"{'them' if several else 'it'}, `rq token create` makes another"
    ]
