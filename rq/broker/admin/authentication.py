"""Logging in: AUTH, and the two commands HELLO."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rq import __version__
from rq.broker.admin import cluster
from rq.broker.admin.clients import client_name
from rq.broker.clients.connection import Connection
from rq.broker.clients.door import DEFAULT
from rq.broker.dialects.call import SYNTAX, Blocked, Refusal, whole
from rq.broker.server import Args, Server
from rq.errors import TooOften
from rq.resp import OK, Failure, Value

_WRONG = "WRONGPASS invalid username-password pair or user is disabled."


def auth(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Give a password, with the name of a user or for all."""
    if len(args) > 2:
        raise Refusal(SYNTAX)
    if not server.door.takes_passwords:
        raise Refusal("ERR Client sent AUTH, but no password is set")
    name = args[0].decode(errors="replace") if len(args) == 2 else DEFAULT
    wrong = Failure(_WRONG if len(args) == 2 else "ERR invalid password")
    return _let_in(
        server, connection, (name, args[-1]), lambda right: OK if right else wrong
    )


def _let_in(
    server: Server,
    connection: Connection,
    login: tuple[str, bytes],
    answer: Callable[[bool], Value],
) -> Blocked:
    """Log a client in if it knows the password; `answer` says what it is told."""

    async def decide() -> Value:
        try:
            principal = await server.door.check(
                *login, connection.address, time.monotonic()
            )
        except TooOften as error:
            return Failure(f"ERR {error}")
        if principal is not None:
            connection.principal = principal
            server.admission.unauthenticated.note(connection)
        return answer(principal is not None)

    return server.scheduler.answer_later(connection, decide())


def hello(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Without arguments Disque's: which nodes there are; else the handshake of Redis."""
    if not args:
        if connection.principal is None:
            raise Refusal("NOAUTH Authentication required.")
        return cluster.hello(server, connection)
    version = whole(args[0])
    if version not in (2, 3):
        raise Refusal("NOPROTO unsupported protocol version")
    name, login = _handshake(args[1:])

    def greeting() -> Value:
        connection.name = connection.name if name is None else name
        connection.version = version
        return _greeting(connection)

    if login is not None:
        wrong = Failure(_WRONG)
        return _let_in(
            server, connection, login, lambda right: greeting() if right else wrong
        )
    if connection.principal is None:
        raise Refusal(
            "NOAUTH HELLO must be called with the client already authenticated, "
            "otherwise the HELLO <proto> AUTH <user> <pass> option can be used to "
            "authenticate the client and select the RESP protocol version at the same "
            "time"
        )
    return greeting()


def _greeting(connection: Connection) -> Value:
    return {
        "server": "rq",
        "version": __version__,
        "proto": connection.version,
        "id": connection.number,
        "mode": "standalone",
        "role": "master",
        "modules": [],
    }


def _handshake(words: Args) -> tuple[str | None, tuple[str, bytes] | None]:
    """Return the name of the connection that HELLO gives, and the login."""
    name: str | None = None
    login: tuple[str, bytes] | None = None
    left = deque(words)
    while left:
        option = left.popleft().upper()
        if option == b"AUTH" and len(left) >= 2:
            login = left.popleft().decode(errors="replace"), left.popleft()
        elif option == b"SETNAME" and left:
            name = client_name(left.popleft())
        else:
            raise Refusal(
                f"ERR Syntax error in HELLO option '{option.decode('latin-1')}'"
            )
    return name, login
