"""The ways to a queue that hands out leases: its socket, or the web of its host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

import orjson

from rq.outbound.api import Api
from rq.outbound.peers import Peer, Target
from rq.replies import Detail
from rq.rpc import client
from rq.words.nesting import Json

_ANSWER = 60.0  # seconds for a reply


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
