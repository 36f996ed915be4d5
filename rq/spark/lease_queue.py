"""The leases of one queue of any host, as Spark asks for them: again and again until there is an
answer. All that is asked may be asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import orjson

import rq
from rq.outbound.api import Api
from rq.outbound.peers import Peer, Target
from rq.replies import Detail, Grant, GrantsView
from rq.rpc import client
from rq.spark import queue_door
from rq.words.nesting import Json
from rq.work import holding
from rq.work.holding import Result

MOST = 1000  # leases that one request asks for
AT_ONCE = 100  # tokens of one request
ENDED = "Spark has committed it"
CANCELLED = "the query has heard of its cancel"
_DONE = "done"
_ANSWER = 60.0  # seconds for a reply


# ---- the ways to a queue: its socket, or the web of its host


class Way(Protocol):
    """Asks a queue. RQError says why there is no answer."""

    def ask(self, command: str, about: Mapping[str, Json]) -> Json:
        """Return the answer to a command about leases."""

    def detail(self) -> Detail:
        """Return how the queue is."""

    def close(self) -> None:
        """Hang up; the next question opens another connection."""


class SocketWay:
    """Asks the owner of a queue of this host."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._line: client.Connection | None = None

    def ask(self, command: str, about: Mapping[str, Json]) -> Json:
        if self._line is None:
            self._line = client.Connection(self._socket, _ANSWER)
        return cast(Json, client.demanded(self._line.ask(command, about)))

    def detail(self) -> Detail:
        return cast(Detail, self.ask("detail", {}))

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class WebWay:
    """Asks the web of any host."""

    def __init__(self, to: Target, peer: Peer) -> None:
        self._line = Api(to, peer)

    def ask(self, command: str, about: Mapping[str, Json]) -> Json:
        path = "/leases" if command == "lease" else f"/leases/{command}"
        return self._line.ask("POST", path, orjson.dumps(about))

    def detail(self) -> Detail:
        reply = cast(Mapping[str, Json], self._line.ask("GET", ""))
        return cast(Detail, reply["detail"])

    def close(self) -> None:
        self._line.close()


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of leases, by their tokens, in sentences."""

    over: Mapping[str, str]  # they are no attempt any more
    cancels: Mapping[str, str]  # an operator wants them to end


class LeaseQueue:
    """A queue that hands out leases."""

    def __init__(self, way: Way, label: str, timeout: float) -> None:
        """`timeout`: seconds for which a queue that does not answer is asked again."""
        self._way = way
        self._label = label
        self._timeout = timeout

    def close(self) -> None:
        self._way.close()

    # ---- asking

    def waiting(self) -> int:
        """Return how many messages wait in the queue."""
        detail = queue_door.insist(self._way.detail, self.close, self._timeout)
        return detail["counts"]["que"]

    def lease(self, count: int, seconds: float, request: str) -> Sequence[Grant]:
        """Lease what is due, at most `count`; the same `request` gets the same."""
        about: dict[str, Json] = {"seconds": seconds, "request": request}
        return self._lease({**about, "count": min(count, MOST)})["leases"]

    def cancels(self) -> Mapping[str, str]:
        """Return why messages shall end that were cancelled since this was asked last."""
        return self._lease({"count": 0}).get("cancels", {})

    def _lease(self, about: Mapping[str, Json]) -> GrantsView:
        who = {"label": self._label, "version": rq.__version__}
        return cast(GrantsView, self._insist("lease", {**about, **who}))

    def start(self, tokens: Sequence[str]) -> Heard:
        """Confirm leases."""
        return _heard(tokens, self._say("start", "tokens", tokens))

    def renew(self, tokens: Sequence[str]) -> Heard:
        """Let leases go on."""
        return _heard(tokens, self._say("renew", "tokens", tokens))

    def release(self, tokens: Sequence[str], why: str) -> None:
        """Give messages back: to the queue, or as cancelled when that was asked for."""
        self._say("release", "tokens", tokens, why=why)

    def finish(self, tokens: Sequence[str]) -> dict[str, str]:
        """End attempts as done; return why those are not done that are not."""
        ends = [{"token": token, "word": _DONE, "text": ENDED} for token in tokens]
        return _not_done(tokens, self._say("finish", "finishes", ends))

    def _say(
        self, command: str, name: str, items: Sequence[Json], **about: Json
    ) -> list[Result]:
        """Say a word about all items; raise what may pass: then all is said again."""
        results: list[Result] = []
        for first in range(0, len(items), AT_ONCE):
            request = {name: list(items[first : first + AT_ONCE]), **about}
            results += queue_door.insist(
                lambda request=request: _results(self._way.ask(command, request)),  # type: ignore[misc]
                self.close,
                self._timeout,
            )
        return results

    def _insist(self, command: str, about: Mapping[str, Json]) -> Json:
        return queue_door.insist(
            lambda: self._way.ask(command, about), self.close, self._timeout
        )


# ---- answers


def _results(reply: Json) -> Sequence[Result]:
    """Return what became of each word; raise the first failure of which a lease is not
    over."""
    rows = cast(Mapping[str, Sequence[Mapping[str, Json]]], reply)["results"]
    results = [holding.result(row, holding.now()) for row in rows]
    holding.check_taken(results)
    return results


def _heard(tokens: Sequence[str], results: Sequence[Result]) -> Heard:
    said = dict(zip(tokens, results, strict=True))
    return Heard(
        over={token: result.text for token, result in said.items() if not result.ok},
        cancels={
            token: result.cancel for token, result in said.items() if result.cancel
        },
    )


def _not_done(tokens: Sequence[str], results: Sequence[Result]) -> dict[str, str]:
    over: dict[str, str] = {}
    for token, result in zip(tokens, results, strict=True):
        if not result.ok:
            over[token] = result.text
        elif result.state != _DONE:
            msg_id = token.partition("~")[0]
            over[token] = f"{msg_id} was cancelled, and is in {result.state}"
    return over
