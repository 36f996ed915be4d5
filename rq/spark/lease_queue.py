"""The leases of one queue, as Spark asks for them: over the owner's socket, again and
again until there is an answer. All that is asked may be asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import rq
from rq import client, wire
from rq.kinds import Kind, kind_of
from rq.nesting import Json
from rq.replies import Detail, Grant, GrantsView, WordResult
from rq.spark import queue_door

MOST = 1000  # leases that one request asks for
AT_ONCE = 100  # tokens of one request
ENDED = "Spark has committed it"
_ANSWER = 60.0  # seconds for a reply
_OVER = frozenset({Kind.LEASE_OVER, Kind.LEASE_FORGOTTEN})


class LeaseQueue:
    """A connection to a queue that hands out leases."""

    def __init__(self, socket: Path, label: str, timeout: float) -> None:
        """`timeout`: seconds for which a queue that does not answer is asked again."""
        self._socket = socket
        self._label = label
        self._timeout = timeout
        self._line: client.Connection | None = None

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    # ---- asking

    def waiting(self) -> int:
        """Return how many messages wait in the queue."""
        view = cast(Detail, self._insist("detail", {}))
        return view["counts"]["que"]

    def lease(self, count: int, seconds: float, request: str) -> Sequence[Grant]:
        """Lease what is due, at most `count`; the same `request` gets the same."""
        about: dict[str, Json] = {"seconds": seconds, "request": request}
        about |= {"count": min(count, MOST), "label": self._label}
        about["version"] = rq.__version__
        return cast(GrantsView, self._insist("lease", about))["leases"]

    def start(self, tokens: Sequence[str]) -> dict[str, str]:
        """Confirm leases; return why those are over that are."""
        return self._say("start", "tokens", tokens)

    def renew(self, tokens: Sequence[str]) -> dict[str, str]:
        """Let leases go on; return why those are over that are."""
        return self._say("renew", "tokens", tokens)

    def release(self, tokens: Sequence[str]) -> dict[str, str]:
        """Give messages back; return why those leases are over that are."""
        return self._say("release", "tokens", tokens)

    def finish(self, tokens: Sequence[str]) -> dict[str, str]:
        """End attempts as done; return why those were over that were."""
        ends = [{"token": token, "word": "done", "text": ENDED} for token in tokens]
        return self._say("finish", "finishes", ends)

    def _say(self, command: str, name: str, items: Sequence[Json]) -> dict[str, str]:
        over: dict[str, str] = {}
        for first in range(0, len(items), AT_ONCE):
            about = {name: list(items[first : first + AT_ONCE])}
            over |= queue_door.insist(
                lambda about=about: _over(self._ask(command, about)),  # type: ignore[misc]
                self.close,
                self._timeout,
            )
        return over

    def _insist(self, command: str, about: Mapping[str, Json]) -> Json:
        return queue_door.insist(
            lambda: self._ask(command, about), self.close, self._timeout
        )

    def _ask(self, command: str, about: Mapping[str, Json]) -> Json:
        if self._line is None:
            self._line = client.Connection(self._socket, _ANSWER)
        return cast(Json, client.demanded(self._line.ask(command, about)))


def _over(reply: Json) -> dict[str, str]:
    """Return the tokens that are no attempt any more, and why; raise what else failed:
    then all of it is asked again."""
    rows = cast(Mapping[str, Sequence[WordResult]], reply)["results"]
    over = {}
    for row in rows:
        if row["ok"]:
            continue
        kind = kind_of(row["kind"])
        if kind not in _OVER:
            raise wire.error_of(kind or Kind.REFUSED, row["text"])
        over[row["token"]] = row["text"]
    return over
