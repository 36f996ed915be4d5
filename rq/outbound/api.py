"""HTTP to the web of one RQ, for whoever asks one thing after the other: JSON goes out and
comes back, and a failure is raised as what it is."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Mapping
from typing import cast

import orjson

from rq import wire
from rq.errors import BadConfig, OutcomeUnknown, RQError, Unreachable
from rq.kinds import URN, Kind, kind_of
from rq.nesting import Json
from rq.outbound.connection import NotAllowed, reason
from rq.outbound.line import Line
from rq.outbound.peers import Peer, Target
from rq.outbound.reply import Reply

JSON, LINES = "application/json", "application/x-ndjson"
_MOST = 256 * 1024 * 1024  # bytes of an answer
# Of an answer without a kind: somebody else's, between us and RQ, or an older RQ's.
_KIND_OF: dict[int, Kind] = {
    404: Kind.NO_SUCH_MESSAGE,
    409: Kind.WRONG_STATE,
    413: Kind.TOO_LARGE,
    429: Kind.BUSY,
    502: Kind.UNREACHABLE,
    504: Kind.OUTCOME_UNKNOWN,
}


class WebLine:
    """A connection to the API of one queue, opened when it is needed."""

    def __init__(self, to: Target, peer: Peer, place: str = "") -> None:
        """`place`: what all paths begin with, behind that of the queue."""
        self._line = Line(to, peer, _MOST)
        self._name = to.peer
        self._place = f"{to.prefix}/api/v1/queues/{to.queue}{place}"

    def close(self) -> None:
        self._line.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = JSON
    ) -> Json:
        """Return what is answered; the failure that it tells of, or Unreachable when
        nothing was asked, OutcomeUnknown when the answer was lost."""
        headers: dict[str, str] = {"Accept": JSON}
        if body is not None:
            headers |= {"Content-Type": kind, "Content-Length": str(len(body))}
        with self._line.guarded():
            self._send(method, path, headers, body)
            reply = self._answer()
        if reply.status != 200:
            raise self._failure(reply)
        return cast(Json, orjson.loads(reply.body))

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> None:
        try:
            self._line.begin(method, self._place + path, headers)
            self._line.send(body or b"")
        except NotAllowed as error:
            raise BadConfig(str(error)) from None  # asking again would not help
        except (OSError, http.client.HTTPException) as error:
            text = f"{self._name} cannot be asked: {reason(error)}"
            raise Unreachable(text) from None

    def _answer(self) -> Reply:
        try:
            return self._line.reply()
        except (OSError, http.client.HTTPException) as error:
            text = f"{self._name} hung up before its answer: {reason(error)}"
            raise OutcomeUnknown(text) from None

    def _failure(self, reply: Reply) -> RQError:
        body: Json = None
        with contextlib.suppress(ValueError):
            body = orjson.loads(reply.body)
        problem = body if isinstance(body, dict) else {}
        text = f"{self._name}: {problem.get('detail', f'status {reply.status}')}"
        kind = reply.kind or kind_of(str(problem.get("type", "")).removeprefix(URN))
        other = Kind.BAD_INPUT if reply.status < 500 else Kind.BUSY
        return wire.error_of(kind or _KIND_OF.get(reply.status, other), text)
