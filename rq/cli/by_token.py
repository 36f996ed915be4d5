"""Sends from inside a script that runs as another user: by the web, as the token of its
attempt allows; the sockets and the config of RQ are closed to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import orjson

from rq.access.attempt_tokens import VARIABLE
from rq.errors import BadInput
from rq.outbound import addresses, peers
from rq.outbound.api import Api
from rq.outbound.peers import Peer
from rq.words.nesting import Json

HOST = "RQ_HOST"  # the address of this RQ, as scripts get it
_PATIENCE = 60.0  # seconds


def submitted(queue: str, fields: Mapping[str, Json]) -> tuple[str, bool]:
    """Send a message; return its short id, and whether that is an equal one, which it has
    joined. An error, as the owner's, when it was not accepted."""
    to = replace(peers.origin(os.environ.get(HOST, "")), queue=queue)
    # The token never leaves this machine's RQ, whose web may be at an internal address
    # and without TLS.
    own = addresses.allowed([to.place])
    peer = Peer(token=os.environ[VARIABLE], insecure=True, allow=own)
    with contextlib.closing(Api(to, peer, seconds=_PATIENCE)) as api:
        answer = api.ask("POST", "/messages", orjson.dumps(fields))
    accepted = cast("Mapping[str, Json]", answer)
    return str(accepted["msg_id"]), bool(accepted.get("joined"))


def refuse(options: Mapping[str, object]) -> None:
    """BadInput for an option that a token does not allow."""
    for name, value in options.items():
        if value:
            raise BadInput(
                f"{name} cannot be done with {VARIABLE}: it sends messages, without files, "
                "and looks at the queue of its script"
            )
