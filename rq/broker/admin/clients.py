"""CLIENT …: the connection that asks, and all others."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from rq.access.roles import Role
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require
from rq.broker.dialects.call import SYNTAX, Blocked, Refusal, at_least, whole
from rq.broker.server import Args, Server
from rq.resp import OK, Failure, Value

_USE = (
    "ERR CLIENT subcommand must be one of LIST, INFO, ID, GETNAME, SETNAME, SETINFO, KILL, "
    "PAUSE, UNPAUSE, UNBLOCK, REPLY, NO-EVICT, NO-TOUCH"
)
_UNBLOCKED = Failure("UNBLOCKED client unblocked via CLIENT UNBLOCK")
_LONGEST_NAME = 256  # bytes that are kept of each client, and shown
_LONGEST_PAUSE = 24 * 3600 * 1000  # milliseconds
_AT_ONCE = 500  # lines of clients
_MOST_FILTERS = 16  # each is asked about all clients
_Filter = Callable[[Connection], bool]


def client(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Tell of clients, name them, let them wait, end them."""
    word, rest = args[0].upper(), args[1:]
    if word in _CHANGES:
        require(connection.principal, Role.ADMIN, f"CLIENT {word.decode()}")
        return _CHANGES[word](server, connection, rest)
    match [word, *rest]:
        case [b"LIST", *filters]:
            wanted = _wanted(_visible(server, connection), filters)
            if len(wanted) <= _AT_ONCE:
                return "".join(map(_listed, wanted))
            return server.scheduler.answer_later(connection, _in_slices(wanted))
        case [b"INFO"]:
            return _listed(connection)
        case [b"ID"]:
            return connection.number
        case [b"GETNAME"]:
            return connection.name or None
        case _:
            return _choose(connection, word, rest)


def _choose(connection: Connection, word: bytes, args: Args) -> Value:
    """Let a client say how it wants to be seen and answered."""
    match [word, *args]:
        case [b"SETNAME", name]:
            connection.name = client_name(name)
            return OK
        case [b"SETINFO", which, text]:
            return _set_info(connection, which, text)
        case [b"REPLY", how]:
            return _reply(connection, how)
        case [b"NO-EVICT" | b"NO-TOUCH", how] if how.upper() in (b"ON", b"OFF"):
            return OK
    raise Refusal(_USE)


def client_name(data: bytes) -> str:
    """Return the name that a client gives itself; Refusal when it cannot be one."""
    if not data.isascii() or any(byte <= 0x20 or byte == 0x7F for byte in data):
        raise Refusal(
            "ERR Client names cannot contain spaces, newlines or special characters."
        )
    if len(data) > _LONGEST_NAME:
        raise Refusal(f"ERR a name has at most {_LONGEST_NAME} bytes")
    return data.decode()


def _set_info(connection: Connection, which: bytes, text: bytes) -> Value:
    """Keep which library a client uses, and its version."""
    words = {b"LIB-NAME": "lib-name", b"LIB-VER": "lib-ver"}
    if which.upper() not in words:
        raise Refusal(f"ERR Unrecognized option '{which.decode(errors='replace'):.64}'")
    connection.library[words[which.upper()]] = client_name(text)
    return OK


def _reply(connection: Connection, how: bytes) -> Value:
    """Answer from now on, or not, or not the next command."""
    skips = {b"ON": 0, b"OFF": math.inf, b"SKIP": 2}  # this answer, and the next one
    if how.upper() not in skips:
        raise Refusal(SYNTAX)
    connection.skips = skips[how.upper()]
    return OK


# ---- all of them


def _visible(server: Server, connection: Connection) -> list[Connection]:
    """Return the clients that one may see: all, or who may ask of some queues alone, its
    own user's."""
    there = list(server.connections.values())
    if connection.may_all(Role.VIEWER):
        return there
    return [each for each in there if each.principal == connection.principal]


def _wanted(visible: list[Connection], filters: Args) -> list[Connection]:
    """Return those of the clients that CLIENT LIST is to tell of."""
    match [word.upper() for word in filters]:
        case [] | [b"TYPE", b"NORMAL"]:
            return visible
        case [b"TYPE", b"MASTER" | b"REPLICA" | b"SLAVE" | b"PUBSUB"]:
            return []
        case [b"ID", *numbers]:
            chosen = {
                at_least(1, number, "ERR Invalid client ID") for number in numbers
            }
            return [each for each in visible if each.number in chosen]
        case _:
            raise Refusal(SYNTAX)


async def _in_slices(wanted: Sequence[Connection]) -> str:
    """Return the lines of many clients, and let others be served while they are made."""
    lines: list[str] = []
    for at in range(0, len(wanted), _AT_ONCE):
        lines += map(_listed, wanted[at : at + _AT_ONCE])
        await asyncio.sleep(0)
    return "".join(lines)


def _listed(connection: Connection) -> str:
    flags = "b" if connection.waits else "N"
    user = "" if connection.principal is None else connection.principal.name
    facts = {
        "id": connection.number,
        "addr": connection.address,
        "fd": connection.sock.fileno(),
        "name": connection.name,
        "age": connection.age,
        "idle": int(time.monotonic() - connection.used),
        "flags": flags,
        "db": 0,
        "qbuf": connection.held,
        "omem": connection.unsent,
        "cmd": connection.last_command or "NULL",
        "user": user.replace(" ", "_"),
        "resp": connection.version,
        **connection.library,
    }
    return " ".join(f"{name}={value}" for name, value in facts.items()) + "\n"


def _kill(server: Server, connection: Connection, args: Args) -> Value:
    """End clients: one by its address, or all that fit."""
    if len(args) == 1:
        address = args[0].decode(errors="replace")
        if not _end(server, connection, [lambda each: each.address == address]):
            raise Refusal("ERR No such client")
        return OK
    if not args or len(args) % 2 or len(args) > 2 * _MOST_FILTERS:
        raise Refusal(SYNTAX)
    filters: list[_Filter] = [lambda each: each is not connection]
    for option, value in zip(args[::2], args[1::2], strict=True):
        if option.upper() == b"SKIPME":
            if value.upper() not in (b"YES", b"NO"):
                raise Refusal(SYNTAX)
            if value.upper() == b"NO":
                del filters[0]
        else:
            filters.append(_filter(option.upper(), value))
    return _end(server, connection, filters)


def _filter(option: bytes, value: bytes) -> _Filter:
    text, number = value.decode(errors="replace"), whole(value)
    match option:
        case b"ID" if number is not None and number > 0:
            return lambda each: each.number == number
        case b"ID":
            raise Refusal("ERR client-id should be greater than 0")
        case b"ADDR":
            return lambda each: each.address == text
        case b"USER":
            return lambda each: (
                each.principal is not None and each.principal.name == text
            )
        case b"MAXAGE" if number is not None:
            return lambda each: each.age >= number
        case b"TYPE":
            is_normal = text.lower() == "normal"
            return lambda each: is_normal
    raise Refusal(SYNTAX)


def _end(server: Server, connection: Connection, filters: list[_Filter]) -> int:
    fitting = [
        each
        for each in list(server.connections.values())
        if all(fits(each) for fits in filters)
    ]
    for each in fitting:
        if each is connection:
            each.close()  # when it has its answer
        else:
            each.kill()
    return len(fitting)


def _pause(server: Server, connection: Connection, args: Args) -> Value:
    """Obey no command for some milliseconds, except those of the operator."""
    match args:
        case [number] | [number, b"ALL" | b"all" | b"WRITE" | b"write"]:
            why = "ERR timeout is not an integer or out of range"
            ms = min(at_least(0, number, why), _LONGEST_PAUSE)
            server.scheduler.pause(ms / 1000)
            return OK
    raise Refusal(SYNTAX)


def _unpause(server: Server, connection: Connection, args: Args) -> Value:
    """Obey all again."""
    server.scheduler.pause(0.0)
    return OK


def _unblock(server: Server, connection: Connection, args: Args) -> Value:
    """Let a client wait for jobs no longer: 1, or 0 when it does not."""
    match [word.upper() for word in args]:
        case [number] | [number, b"TIMEOUT"]:
            answer = None
        case [number, b"ERROR"]:
            answer = _UNBLOCKED
        case _:
            raise Refusal(SYNTAX)
    client = at_least(1, number, "ERR Invalid client ID")
    is_done = server.node.unblock(client, answer)
    server.soon()
    return int(is_done)


_CHANGES = {
    b"KILL": _kill,
    b"PAUSE": _pause,
    b"UNPAUSE": _unpause,
    b"UNBLOCK": _unblock,
}
