"""Tokens of attempts: what a script that runs as another user shows to send messages.

A file in `config/attempts/`, called by the digest of the secret, says whose it is and
which process stands for it. It is no promise: with the attempt it is removed, and without
that process, after a crash or a new start of the machine, it says nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from rq import config, names
from rq.access.roles import EVERY_QUEUE, Principal, Role
from rq.access.tokens import digest_of, new_secret
from rq.config import files
from rq.errors import BadConfig
from rq.layout import Root
from rq.proc import processes

VARIABLE = "RQ_TOKEN"
_ATTEMPT = "attempt:"

log = logging.getLogger(__name__)


class AttemptTokens:
    """The tokens of the attempts of one queue, in the process that owns it."""

    def __init__(self, root: Root, queue: str) -> None:
        """Remove what an earlier owner has left."""
        self._root = root
        self._queue = queue
        self._digests: dict[str, str] = {}  # by message or batch
        self._over: set[str] = set()  # of attempts that have ended
        self._owner = ""
        _clear(root, queue)

    def begin(self, of: str, user: str) -> dict[str, str]:
        """Make the token of an attempt on a message, or on a batch, as which a `user`
        runs; return what its script has of it in its environment."""
        self._owner = self._owner or _process(os.getpid())
        secret = new_secret()
        digest = self._digests[of] = digest_of(secret)
        files.make_dir(self._root.attempt_tokens)
        about = {"queue": self._queue, "of": of, "owner": self._owner, "user": user}
        path = self._root.attempt_tokens / digest
        try:
            files.write_cache(path, about)
        except OSError:
            _remove(path.with_name(f"{digest}.tmp"))  # no other attempt would do it
            raise
        return {VARIABLE: secret}

    def end(self, of: str) -> None:
        """End the token of an attempt, if it had one."""
        digest = self._digests.pop(of, None)
        if digest is not None:
            self._over.add(digest)
            self.remove_again()

    def remove_again(self) -> None:
        """Remove the tokens of attempts that have ended; one that the disk keeps holds up
        nobody, and is tried again."""
        for digest in tuple(self._over):
            if _remove(self._root.attempt_tokens / digest):
                self._over.discard(digest)


def of_attempt(root: Root, secret: str) -> Principal | None:
    """Return who has the token of an attempt that runs; None for none."""
    about = _read(root, digest_of(secret))
    queue, of, owner = (about.get(name) for name in ("queue", "of", "owner"))
    if not (isinstance(queue, str) and isinstance(owner, str)):
        return None
    if owner != _process(int(owner.split("/")[1])):
        return None
    # It looks at its own queue, and sends to all.
    name = f"{_ATTEMPT}{queue}/{of}"
    # The next attempt has another token, and is the same user.
    user = str(about.get("user") or f"attempt:{queue}")
    return Principal(
        name=name, role=Role.PRODUCER, queues=(queue,), sends=EVERY_QUEUE, of=user
    )


def message_of(principal: Principal) -> str:
    """Return the QUEUE/ID of the message that an attempt works on; "" for all others, and
    for the attempt of a batch, which works on many."""
    place = principal.name.removeprefix(_ATTEMPT)
    is_attempt = place != principal.name and principal.sends == EVERY_QUEUE
    return place if is_attempt and names.is_msg_id(place.partition("/")[2]) else ""


def _process(pid: int) -> str:
    """Return what names a process for ever; of one that has ended nothing it was."""
    return f"{processes.boot_id()}/{pid}/{processes.start_time(pid)}"


def _read(root: Root, digest: str) -> Mapping[str, object]:
    path = root.attempt_tokens / digest
    try:
        return config.read_json(path) if path.exists() else {}
    except BadConfig:  # it has ended just now
        return {}


def _clear(root: Root, queue: str) -> None:
    if not root.attempt_tokens.is_dir():
        return
    for name in os.listdir(root.attempt_tokens):
        if _read(root, name).get("queue") == queue:
            _remove(root.attempt_tokens / name)


def _remove(path: Path) -> bool:
    """Remove the file of a token; False when that cannot be done now."""
    try:
        files.remove_upload(path)
    except OSError as error:
        log.error("the token of an attempt that has ended cannot be removed: %s", error)
        return False
    return True
