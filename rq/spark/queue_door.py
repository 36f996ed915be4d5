"""The way of Spark into a queue: transactions over HTTP, or over the owner's socket.

All that is asked may be asked again, so a lost answer, a queue that restarts or a web
that is busy is tried again until `timeout`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import unquote, urlsplit

import orjson

from rq import back_off, client, wire
from rq.errors import OutcomeUnknown, RQError, Unreachable
from rq.kinds import PASSING, URN, Kind, kind_of
from rq.layout import Root
from rq.nesting import Json
from rq.replies import TransactionView

Request = Mapping[str, Json]
_Reply = TypeVar("_Reply")

_ANSWER = 60.0  # seconds for a reply
# What is asked again: what may pass, and what a rule forbids that somebody may change.
AGAIN = PASSING | {Kind.REFUSED}
_JSON, _LINES = "application/json", "application/x-ndjson"
# Of an answer without a kind: somebody else's, between us and RQ, or an older RQ's.
_KIND_OF: dict[int, Kind] = {
    404: Kind.NO_SUCH_MESSAGE,
    409: Kind.WRONG_STATE,
    413: Kind.TOO_LARGE,
    429: Kind.BUSY,
    502: Kind.UNREACHABLE,
    504: Kind.OUTCOME_UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A queue, and how it is reached."""

    queue: str
    url: str | None  # of the web
    root: str | None
    key: str | None = None
    ttl: float = 3600.0
    timeout: float = 60.0  # seconds that something is tried again


class Door:
    """A connection to a queue's transactions."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._way: _Http | _Local = _Http(target) if target.url else _Local(target)

    def close(self) -> None:
        self._way.close()

    def open(self, key: str) -> TransactionView:
        """Open the transaction of a key, or find it; return how it stands."""
        request: Request = {"key": key, "ttl": self._target.ttl}
        reply = self._insist(lambda: self._way.open(request))
        return cast(TransactionView, reply)

    def show(self, txn: str) -> TransactionView:
        return cast(TransactionView, self._insist(lambda: self._way.show(txn)))

    def prepare(self, txn: str, messages: Sequence[Request]) -> list[str]:
        """Prepare messages; return their ids. What was prepared by a request without an
        answer is not in the list of the commit, and is discarded by it."""
        ids = self._insist(lambda: self._way.prepare(txn, messages))
        return cast(list[str], ids)

    def commit(self, txn: str, ids: list[str]) -> None:
        self._insist(lambda: self._way.commit(txn, ids))

    def abort(self, txn: str) -> None:
        self._insist(lambda: self._way.abort(txn))

    def _insist(self, ask: Callable[[], _Reply]) -> _Reply:
        return insist(ask, self._way.close, self._target.timeout)


def insist(
    ask: Callable[[], _Reply], hang_up: Callable[[], None], timeout: float
) -> _Reply:
    """Ask until there is an answer, or for `timeout` seconds; hang up between tries."""
    until = time.monotonic() + timeout
    tries = 0
    while True:
        try:
            return ask()
        except RQError as error:
            if error.kind not in AGAIN:
                raise
            tries += 1
            pause = back_off.delay(tries, 0.1, 5.0)
            if time.monotonic() + pause > until:
                raise
            hang_up()
            time.sleep(pause)


class _Local:
    """Asks the owner of a queue of this host."""

    def __init__(self, target: Target) -> None:
        assert target.root, "a target has a url or a root"
        self._socket = Root(Path(target.root)).queue(target.queue).socket
        self._line: client.Connection | None = None

    def open(self, request: Request) -> Json:
        return self._ask("open_txn", request)

    def show(self, txn: str) -> Json:
        return self._ask("show_txn", {"txn": txn})

    def prepare(self, txn: str, messages: Sequence[Request]) -> Json:
        return self._ask("prepare_txn", {"txn": txn, "messages": messages})

    def commit(self, txn: str, ids: list[str]) -> Json:
        return self._ask("commit_txn", {"txn": txn, "ids": ids})

    def abort(self, txn: str) -> Json:
        return self._ask("abort_txn", {"txn": txn})

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _ask(self, command: str, request: Request) -> Json:
        if self._line is None:
            self._line = client.Connection(self._socket, _ANSWER)
        return cast(Json, client.demanded(self._line.ask(command, request)))


class _Http:
    """Asks the web of RQ."""

    def __init__(self, target: Target) -> None:
        parts = urlsplit(target.url or "")
        host, port = parts.hostname or "", parts.port
        plain = parts.scheme == "http"
        kind = http.client.HTTPConnection if plain else http.client.HTTPSConnection
        self._line = kind(host, port, timeout=_ANSWER)
        self._name = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
        self._place = f"{parts.path.rstrip('/')}/api/v1/queues/{target.queue}/txn"
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            encoded = base64.b64encode(login.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"

    def open(self, request: Request) -> Json:
        return self._post("", orjson.dumps(request))

    def show(self, txn: str) -> Json:
        return self._ask("GET", f"/{txn}")

    def prepare(self, txn: str, messages: Sequence[Request]) -> Json:
        body = b"\n".join(orjson.dumps(message) for message in messages)
        reply = self._post(f"/{txn}/messages", body, _LINES)
        return cast(Mapping[str, Json], reply)["ids"]

    def commit(self, txn: str, ids: list[str]) -> Json:
        return self._post(f"/{txn}/commit", orjson.dumps({"ids": ids}))

    def abort(self, txn: str) -> Json:
        return self._post(f"/{txn}/abort", b"")

    def close(self) -> None:
        self._line.close()

    def _post(self, place: str, body: bytes, kind: str = _JSON) -> Json:
        return self._ask("POST", place, body, {"Content-Type": kind})

    def _ask(
        self,
        method: str,
        place: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Json:
        every = {**self._headers, **(headers or {})}
        try:
            self._line.request(method, self._place + place, body, every)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self._name} cannot be asked: {error}") from None
        try:
            reply = self._line.getresponse()
            data = reply.read()
        except (OSError, http.client.HTTPException) as error:
            text = f"{self._name} hung up before its answer: {error}"
            raise OutcomeUnknown(text) from None
        if reply.status != 200:
            raise self._failure(reply.status, data)
        return cast(Json, orjson.loads(data))

    def _failure(self, status: int, data: bytes) -> RQError:
        body: Json = None
        with contextlib.suppress(ValueError):
            body = orjson.loads(data)
        problem = body if isinstance(body, dict) else {}
        text = f"{self._name}: {problem.get('detail', f'status {status}')}"
        kind = kind_of(str(problem.get("type", "")).removeprefix(URN))
        other = Kind.BAD_INPUT if status < 500 else Kind.BUSY
        return wire.error_of(kind or _KIND_OF.get(status, other), text)
