"""The process and the connection as such: PING, ECHO, TIME, QUIT, DEBUG, SHUTDOWN."""

from __future__ import annotations

import time

from rq.access.roles import Role
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require
from rq.broker.dialects.call import SYNTAX, Blocked, Refusal, decimal
from rq.broker.server import Args, Server
from rq.resp import OK, Status, Value

# All is on disk in any case.
_HOW_TO_END = (b"REWRITE-AOF", b"SAVE", b"NOSAVE")
_LONGEST_SLEEP = 3600.0  # seconds


def ping(server: Server, connection: Connection, args: Args) -> Value:
    """Is anybody there?"""
    if len(args) > 1:
        raise Refusal("ERR wrong number of arguments for 'ping' command")
    return args[0] if args else Status("PONG")


def echo(server: Server, connection: Connection, args: Args) -> Value:
    """Say the same; `redis-cli --pipe` knows by it that all was done."""
    return args[0]


def clock(server: Server, connection: Connection, args: Args) -> Value:
    """The time of day: seconds, and microseconds."""
    now = time.time_ns() // 1000
    return [str(now // 1_000_000), str(now % 1_000_000)]


def quit_(server: Server, connection: Connection, args: Args) -> Value:
    """End the connection."""
    connection.close()
    return OK


def debug(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """FLUSHALL: remove all jobs and queues; SLEEP: obey nothing for some seconds;
    RESTART: let the supervisor start the broker again."""
    require(connection.principal, Role.ADMIN, "DEBUG")
    match [args[0].upper(), *args[1:]]:
        case [b"FLUSHALL"]:
            server.node.desk.flush(server.store.clock.now())
            return OK
        case [b"SLEEP", text]:
            server.scheduler.pause(_seconds(text))
            return OK
        case [b"LOADAOF"]:
            return OK  # memory holds what the journal does, in any case
        case [b"RESTART"]:
            return _restart(server)
        case [b"ERROR", text]:
            raise Refusal(text.decode(errors="replace"))
    word = args[0].decode(errors="replace")
    raise Refusal(
        f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{word:.64}'"
    )


def flushall(server: Server, connection: Connection, args: Args) -> Value:
    """Remove all keys of RedisRQ; jobs and events are none."""
    require(connection.principal, Role.ADMIN, "FLUSHALL")
    if [word.upper() for word in args] not in ([], [b"SYNC"], [b"ASYNC"]):
        raise Refusal(SYNTAX)
    server.node.messages.clear(server.store.clock.now())
    return OK


def _restart(server: Server) -> Blocked:
    if not server.has_supervisor:
        raise Refusal("ERR nobody would start this node again: it has no supervisor")
    return _end(server)


def _end(server: Server) -> Blocked:
    if not server.stop.done():
        server.stop.set_result(None)
    return Blocked()


def _seconds(text: bytes) -> float:
    number = decimal(text)
    if number is None:
        raise Refusal("ERR value is not a valid float")
    return min(max(number, 0.0), _LONGEST_SLEEP)


def shutdown(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """End the broker; the supervisor starts it again, unless it is disabled."""
    require(connection.principal, Role.ADMIN, "SHUTDOWN")
    if len(args) > 1 or any(word.upper() not in _HOW_TO_END for word in args):
        raise Refusal(SYNTAX)
    return _end(server)


def rewrite(server: Server, connection: Connection, args: Args) -> Value:
    """Write a snapshot, so that the journal before it can go."""
    require(connection.principal, Role.ADMIN, "BGREWRITEAOF")
    server.store.want_snapshot()
    server.soon()
    return Status("Background append only file rewriting started")


def loadjob(server: Server, connection: Connection, args: Args) -> Value:
    """Nothing: in Disque it stands in files."""
    raise Refusal("ERR LOADJOB is a special command only processed from AOF")
