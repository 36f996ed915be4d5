"""The way of Spark into a queue: transactions over HTTP, or over the owner's socket.

All that is asked may be asked again, so a lost answer, a queue that restarts or a web
that is busy is tried again until `timeout`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import unquote, urlsplit

import orjson

from rq import back_off
from rq.errors import RQError
from rq.kinds import PASSING, Kind
from rq.layout import Root
from rq.outbound import addresses, api, peers
from rq.outbound.api import Api
from rq.outbound.peers import Peer
from rq.replies import RowsView, TransactionView
from rq.rpc import client
from rq.words.nesting import Json

Request = Mapping[str, Json]
_Reply = TypeVar("_Reply")

_ANSWER = 60.0  # seconds for a reply
# What is asked again: what may pass, and what a rule forbids that an operator may change.
AGAIN = PASSING | {Kind.REFUSED}


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

    def open_of(self, head: str) -> TransactionView:
        """Open a transaction that another one decides for. One whose answer was lost is
        discarded when that is decided."""
        request: Request = {"of": head, "ttl": self._target.ttl}
        reply = self._insist(lambda: self._way.open(request))
        return cast(TransactionView, reply)

    def show(self, txn: str) -> TransactionView:
        return cast(TransactionView, self._insist(lambda: self._way.show(txn)))

    def prepare(self, txn: str, messages: Sequence[Request]) -> list[str]:
        """Prepare messages; return their ids. What was prepared by a request without an
        answer is not in the list of the commit, and is discarded by it."""
        ids = self._insist(lambda: self._way.prepare(txn, messages))
        return cast(list[str], ids)

    def add_rows(self, txn: str, messages: Sequence[Request]) -> str:
        """Hand in messages that wait as lines of a file; return its name, for the commit."""
        view = self._insist(lambda: self._way.add_rows(txn, messages))
        return cast(RowsView, view)["rows"]

    def commit(
        self,
        txn: str,
        ids: list[str],
        chain: Sequence[str] = (),
        rows: Sequence[str] = (),
    ) -> None:
        """Accept messages, those of a chain of transactions, and rows."""
        choice: dict[str, Json] = {"ids": ids}
        if chain:
            choice["chain"] = list(chain)
        if rows:
            choice["rows"] = list(rows)
        self._insist(lambda: self._way.commit(txn, choice))

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
        self._patience = min(_ANSWER, target.timeout)
        self._line: client.Connection | None = None

    def open(self, request: Request) -> Json:
        return self._ask("open_txn", request)

    def show(self, txn: str) -> Json:
        return self._ask("show_txn", {"txn": txn})

    def prepare(self, txn: str, messages: Sequence[Request]) -> Json:
        return self._ask("prepare_txn", {"txn": txn, "messages": messages})

    def add_rows(self, txn: str, messages: Sequence[Request]) -> Json:
        return self._ask("add_rows", {"txn": txn, "messages": messages})

    def commit(self, txn: str, choice: Request) -> Json:
        return self._ask("commit_txn", {"txn": txn, **choice})

    def abort(self, txn: str) -> Json:
        return self._ask("abort_txn", {"txn": txn})

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _ask(self, command: str, request: Request) -> Json:
        if self._line is None:
            self._line = client.Connection(self._socket, self._patience)
        return cast(Json, client.demanded(self._line.ask(command, request)))


class _Http:
    """Asks the web of RQ."""

    def __init__(self, target: Target) -> None:
        to, peer = _reached(target.url or "")
        self._line = Api(replace(to, queue=target.queue), peer, "/txn")

    def open(self, request: Request) -> Json:
        return self._line.ask("POST", "", orjson.dumps(request))

    def show(self, txn: str) -> Json:
        return self._line.ask("GET", f"/{txn}")

    def prepare(self, txn: str, messages: Sequence[Request]) -> Json:
        return cast(Mapping[str, Json], self._post(txn, "messages", messages))["ids"]

    def add_rows(self, txn: str, messages: Sequence[Request]) -> Json:
        return self._post(txn, "rows", messages)

    def _post(self, txn: str, what: str, messages: Sequence[Request]) -> Json:
        body = b"\n".join(orjson.dumps(message) for message in messages)
        return self._line.ask("POST", f"/{txn}/{what}", body, api.LINES)

    def commit(self, txn: str, choice: Request) -> Json:
        return self._line.ask("POST", f"/{txn}/commit", orjson.dumps(choice))

    def abort(self, txn: str) -> Json:
        return self._line.ask("POST", f"/{txn}/abort", b"")

    def close(self) -> None:
        self._line.close()


def _reached(url: str) -> tuple[peers.Target, Peer]:
    """Return what a URL names, and how it is reached: the person who writes the job has named it,
    so it may be an internal host, and the password is theirs to send."""
    to = peers.origin(url)
    allow = addresses.allowed([to.place])
    parts = urlsplit(url)
    if parts.username is None:
        return to, Peer(allow=allow)
    user, password = unquote(parts.username), unquote(parts.password or "")
    return to, Peer(allow=allow, user=user, password=password, insecure=True)
