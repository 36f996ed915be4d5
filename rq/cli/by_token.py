"""Sends from inside a script that runs as another user: by the web, as the token of its
attempt allows; the sockets and the config of RQ are closed to it."""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from typing import cast

import orjson

from rq import wire
from rq.access.attempt_tokens import VARIABLE
from rq.errors import BadInput, OutcomeUnknown, RQError, Unreachable
from rq.kinds import Kind
from rq.nesting import Json, from_json
from rq.outbound import addresses, connection, peers
from rq.outbound.line import Line
from rq.outbound.peers import Peer, Target
from rq.outbound.reply import Reply

HOST = "RQ_HOST"  # the address of this RQ, as scripts get it
_PATIENCE = 60.0  # seconds
_TEXT = 500  # characters of the web's sentence


def submitted(queue: str, fields: Mapping[str, Json]) -> tuple[str, bool]:
    """Send a message; return its short id, and whether that is an equal one, which it has
    joined. An error, as the owner's, when it was not accepted."""
    to = peers.origin(os.environ.get(HOST, ""))
    path = f"{to.prefix}/api/v1/queues/{queue}/messages"
    reply = _post(to, path, orjson.dumps(fields))
    if reply.status not in (200, 201):
        kind = reply.kind or Kind.REFUSED
        raise wire.error_of(kind, f"{queue}: {_sentence(reply)}")
    accepted = cast(
        "Mapping[str, Json]", from_json(reply.body, "the answer of the web")
    )
    return str(accepted["msg_id"]), bool(accepted.get("joined"))


def refuse(options: Mapping[str, object]) -> None:
    """BadInput for an option that a token does not allow."""
    for name, value in options.items():
        if value:
            raise BadInput(
                f"{name} cannot be done with {VARIABLE}: it sends messages, without files, "
                "and looks at the queue of its script"
            )


def _post(to: Target, path: str, body: bytes) -> Reply:
    """Return what the web of this RQ answers, which may be at an internal address and
    without TLS: the token never leaves this machine's RQ."""
    own = addresses.allowed([to.place])
    line = Line(to, Peer(token=os.environ[VARIABLE], insecure=True, allow=own))
    try:
        with line.within(_PATIENCE):
            line.begin("POST", path, _headers(body))
    except OSError as error:
        why = connection.reason(error)
        raise Unreachable(
            f"the web of RQ at {to.peer} does not answer: {why}"
        ) from None
    try:
        with line.within(_PATIENCE):
            line.send(body)
            return line.reply()
    except (OSError, http.client.HTTPException) as error:
        why = connection.reason(error)
        text = f"{to.peer}: {why}; nobody knows whether the message was accepted"
        raise OutcomeUnknown(text) from None
    finally:
        line.close()


def _headers(body: bytes) -> dict[str, str]:
    return {"Content-Type": "application/json", "Content-Length": str(len(body))}


def _sentence(reply: Reply) -> str:
    try:
        problem = from_json(reply.body, "its answer")
    except RQError:
        problem = None
    text = problem.get("detail") if isinstance(problem, dict) else None
    return str(text or f"the web answers with status {reply.status}")[:_TEXT]
