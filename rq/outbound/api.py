"""The API of an RQ, for a program that asks one thing after the other: JSON goes out and
comes back, and a failure is raised as what it is."""

from __future__ import annotations

import contextlib

import orjson

from rq.errors import BadConfig, OutcomeUnknown, RQError, Unreachable
from rq.kinds import URN, Kind, kind_of
from rq.outbound.connection import NotAllowed, reason
from rq.outbound.exchange import Reply
from rq.outbound.line import Line
from rq.outbound.peers import Peer, Target
from rq.rpc import wire
from rq.words import visible
from rq.words.nesting import Json, from_json

JSON, LINES = "application/json", "application/x-ndjson"
_MOST = 256 * 1024 * 1024  # bytes of an answer
_TEXT = 1000  # characters of a host's sentence
# Of an answer without a kind: of a program between us and RQ, or of an older RQ.
_KIND_OF: dict[int, Kind] = {
    401: Kind.LOGIN_NEEDED,
    403: Kind.NOT_ALLOWED,
    404: Kind.NO_SUCH_QUEUE,
    408: Kind.BUSY,  # the request came too slowly to be read
    409: Kind.WRONG_STATE,
    413: Kind.TOO_LARGE,
    425: Kind.BUSY,
    429: Kind.BUSY,
    502: Kind.UNREACHABLE,
    504: Kind.OUTCOME_UNKNOWN,
}


class Api:
    """A connection to the API of one queue, opened when it is needed."""

    def __init__(
        self, to: Target, peer: Peer, place: str = "", seconds: float | None = None
    ) -> None:
        """`place`: what all paths begin with, behind that of the queue. `seconds`: bounds
        the whole of an answer, in the main thread."""
        self._line = Line(to, peer, _MOST)
        self._name = to.peer
        self._place = f"{to.prefix}/api/v1/queues/{to.queue}{place}"
        self._seconds = seconds

    def close(self) -> None:
        self._line.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = JSON
    ) -> Json:
        """Return what is answered; the failure that it tells of, or Unreachable when
        nothing was asked, OutcomeUnknown when the answer was lost."""
        headers = {"Accept": JSON}
        if body is not None:
            headers["Content-Type"] = kind
        line, seconds = self._line, self._seconds
        is_asked = False
        try:
            with line.guarded() if seconds is None else line.within(seconds):
                line.begin(method, self._place + path, body, headers)
                is_asked = True
                reply = line.reply()
        except NotAllowed as error:
            raise BadConfig(str(error)) from None  # asking again would not help
        except OSError as error:
            raise self._no_answer(is_asked, reason(error)) from None
        if reply.status not in (200, 201):
            raise failure_of(reply, self._name, Kind.BAD_INPUT)
        return from_json(reply.body, f"what {self._name} answers")

    def _no_answer(self, is_asked: bool, why: str) -> RQError:
        if is_asked:
            return OutcomeUnknown(f"{self._name}: {why}; it may have been done")
        return Unreachable(f"{self._name} does not answer: {why}")


def failure_of(reply: Reply, name: str = "", other: Kind = Kind.REFUSED) -> RQError:
    """Return the failure that an answer tells of; `name` of the host is for people, and
    `other` is what an answer below 500 means that tells of none."""
    problem: Json = None
    with contextlib.suppress(ValueError):
        problem = orjson.loads(reply.body)
    fields = problem if isinstance(problem, dict) else {}
    text = visible.line(str(fields.get("detail") or _silent(reply))[:_TEXT])
    kind = reply.kind or kind_of(str(fields.get("type", "")).removeprefix(URN))
    other = other if reply.status < 500 else Kind.BUSY
    kind = kind or _KIND_OF.get(reply.status, other)
    return wire.error_of(kind, f"{name}: {text}" if name else text)


def _silent(reply: Reply) -> str:
    return (
        f"the host answers with status {reply.status} and does not say why: is it an RQ, "
        "and the URL right?"
    )
