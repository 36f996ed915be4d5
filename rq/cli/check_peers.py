"""`check_rq --peers`: whether each host of config/peers.json can be sent to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import orjson

from rq import sentences
from rq.cli.levels import Finding, Level
from rq.errors import RQError
from rq.kinds import Kind
from rq.layout import Root
from rq.nesting import Json
from rq.outbound import connection, peers
from rq.outbound.exchange import Reply
from rq.outbound.line import Line
from rq.outbound.peers import Peer, Target

_TIMEOUT = 10.0  # seconds for a host of which nothing else is set
_PATH = "check_rq/new_message"  # nothing is sent: the message in it is missing
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def findings(root: Root, *, insecure: bool) -> Iterator[Finding]:
    """Say of each host whether it answers, knows who asks, and lets them send."""
    table = peers.read_all(root)
    for url in table.urls:
        to = peers.origin(url)
        peer = table.peers[to.peer]
        yield _finding(to, replace(peer, insecure=insecure or peer.insecure))


def _finding(to: Target, peer: Peer) -> Finding:
    line = None
    try:
        line = Line(to, peer)
        with line.within(_TIMEOUT):
            reply = line.request("POST", to.path(_PATH), b"x_format=json", _FORM)
    except OSError as error:
        return Finding(Level.CRITICAL, f"{to.peer}: {connection.reason(error)}")
    except RQError as error:
        return Finding(Level.CRITICAL, f"{to.peer}: {error}")
    finally:
        if line is not None:
            line.close()
    level, text = _judge(reply)
    return Finding(level, f"{to.peer}: {text}")


def _judge(reply: Reply) -> tuple[Level, str]:
    if reply.status == 401:
        return Level.CRITICAL, "it does not know the login or token that is set here"
    if reply.status == 403:
        return _not_permitted(_kind(reply))
    if reply.status >= 500:
        return Level.CRITICAL, f"it answers {connection.phrase(reply.status)}"
    if 300 <= reply.status < 400:
        return (
            Level.CRITICAL,
            "it redirects to another address, which the relay does not follow",
        )
    return Level.OK, "may send there"


def _not_permitted(kind: Kind | None) -> tuple[Level, str]:
    """Tell a role that may not send from one that may, to other queues than this."""
    if kind is Kind.OTHER_QUEUE:
        return Level.OK, "may send there, to some queues"
    return (
        Level.CRITICAL,
        "the login or token that is set here may not send there: it needs the role producer",
    )


def _kind(reply: Reply) -> Kind | None:
    """Return the kind of a failure, by its sentence where an earlier RQ answers."""
    if reply.kind is not None:
        return reply.kind
    try:
        problem: Json = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return sentences.kind_of(str(detail))
