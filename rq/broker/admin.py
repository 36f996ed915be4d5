"""Commands about the server and the connection: PING to SHUTDOWN, and the HELLO of Redis.
Source: spec/resp.md 0 and 1.13."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING

from rq import __version__
from rq.broker import queue_list
from rq.broker.connection import Connection
from rq.broker.dialects.call import SYNTAX, Blocked, Refusal, whole
from rq.errors import TooOften
from rq.resp import OK, Failure, Status, Value

if TYPE_CHECKING:
    from rq.broker.server import Server

BEFORE_AUTH = frozenset({b"AUTH", b"HELLO", b"QUIT"})
Args = list[bytes]
Function = Callable[["Server", Connection, Args], Value | Blocked]
_MOST_ROWS = 1000  # that are shown at a time
_WRONG = "WRONGPASS invalid username-password pair or user is disabled."


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """What a name does; `arity` as in `Command`."""

    function: Function
    arity: int

    def takes(self, words: int) -> bool:
        """Whether a command may have so many words, its name counted."""
        return words == self.arity if self.arity >= 0 else words >= -self.arity


def is_own(uid: int | None) -> bool:
    """Whether a user needs no password: the broker's own, and root."""
    return uid is not None and uid in (os.getuid(), 0)


# ---- who comes in


def auth(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Give the password."""
    if len(args) > 2:
        raise Refusal(SYNTAX)
    if not server.settings.password:
        raise Refusal("ERR Client sent AUTH, but no password is set")
    wrong = Failure("ERR invalid password")
    return _let_in(server, connection, args[-1], lambda right: OK if right else wrong)


def _let_in(
    server: Server,
    connection: Connection,
    password: bytes,
    answer: Callable[[bool], Value],
) -> Value | Blocked:
    """Let a client in if it knows the password, and give it the answer to that."""

    def decided(is_right: bool) -> Value:
        if is_right:
            connection.may_come_in = connection.is_trusted = True
        return answer(is_right)

    def later(is_right: bool) -> None:
        connection.answer_waiting(decided(is_right))

    now = server.store.clock.now()
    try:
        is_right = server.door.knock(password, connection.address, now, later)
    except TooOften as error:
        raise Refusal(f"ERR {error}") from None
    return Blocked() if is_right is None else decided(is_right)


def hello(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Without arguments Disque's: which nodes there are; else the handshake of Redis."""
    if not args:
        if not connection.may_come_in:
            raise Refusal("NOAUTH Authentication required.")
        return _nodes(server, connection)
    version = whole(args[0])
    if version not in (2, 3):
        raise Refusal("NOPROTO unsupported protocol version")
    name, password = _handshake(args[1:])

    def greeting() -> Value:
        connection.name = connection.name if name is None else name
        connection.version = version
        return _greeting(connection)

    if password is not None and server.settings.password:
        wrong = Failure(_WRONG)
        return _let_in(
            server, connection, password, lambda right: greeting() if right else wrong
        )
    if password is not None:
        raise Refusal(_WRONG)
    if not connection.may_come_in:
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


def _handshake(words: Args) -> tuple[str | None, bytes | None]:
    """Return the name and the password that HELLO gives."""
    name: str | None = None
    password: bytes | None = None
    while words:
        option = words.pop(0).upper()
        if option == b"AUTH" and len(words) >= 2:
            _, password = words.pop(0), words.pop(0)
        elif option == b"SETNAME" and words:
            name = _name(words.pop(0))
        else:
            raise Refusal(
                f"ERR Syntax error in HELLO option '{option.decode('latin-1')}'"
            )
    return name, password


def _nodes(server: Server, connection: Connection) -> Value:
    name = connection.sock.getsockname()
    address = name[0] if isinstance(name, tuple) else ""
    node_id = server.node.node_id
    return [1, node_id, [node_id, address, str(server.settings.port), "1"]]


def _name(data: bytes) -> str:
    if not data.isascii() or any(byte <= 0x20 or byte == 0x7F for byte in data):
        raise Refusal(
            "ERR Client names cannot contain spaces, newlines or special characters."
        )
    return data.decode()


def quit_(server: Server, connection: Connection, args: Args) -> Value:
    """End the connection."""
    connection.close()
    return OK


# ---- the connection


def ping(server: Server, connection: Connection, args: Args) -> Value:
    """Is anybody there?"""
    if len(args) > 1:
        raise Refusal("ERR wrong number of arguments for 'ping' command")
    return args[0] if args else Status("PONG")


def clock(server: Server, connection: Connection, args: Args) -> Value:
    """The time of day: seconds, and microseconds."""
    now = time.time_ns() // 1000
    return [str(now // 1_000_000), str(now % 1_000_000)]


def client(server: Server, connection: Connection, args: Args) -> Value:
    """CLIENT …: the connection, and all others."""
    word = args[0].upper()
    match word, args[1:]:
        case b"ID", []:
            return connection.number
        case b"GETNAME", []:
            return connection.name or None
        case b"SETNAME", [name]:
            connection.name = _name(name)
            return OK
        case b"SETINFO", [_, _]:
            return OK
        case b"LIST", _:
            return "".join(
                _listed(server, each) for each in server.connections.values()
            )
        case b"INFO", []:
            return _listed(server, connection)
    raise Refusal("ERR Syntax error, try CLIENT (LIST | GETNAME | SETNAME name | ID)")


def _listed(server: Server, connection: Connection) -> str:
    age = int(server.store.clock.now() - connection.began)
    flags = "b" if connection.waits else "N"
    return (
        f"id={connection.number} name={connection.name} age={age} flags={flags} "
        f"cmd={connection.last_command or 'NULL'}\n"
    )


def command(server: Server, connection: Connection, args: Args) -> Value:
    """COMMAND …: how many commands there are."""
    if args and args[0].upper() == b"COUNT":
        return len(TABLE)
    return []


# ---- the server


def info(server: Server, connection: Connection, args: Args) -> Value:
    """INFO [SECTION]: lines of names and values."""
    if len(args) > 1:
        raise Refusal(SYNTAX)
    wanted = args[0].decode(errors="replace").lower() if args else "default"
    sections = _sections(server)
    chosen = sections if wanted in ("default", "all") else [wanted]
    return "\r\n".join(
        _section(name, sections[name]) for name in chosen if name in sections
    )


def _section(name: str, facts: Mapping[str, object]) -> str:
    return f"# {name.capitalize()}\r\n" + "".join(
        f"{key}:{value}\r\n" for key, value in facts.items()
    )


def _sections(server: Server) -> dict[str, dict[str, object]]:
    jobs, settings = server.node.jobs, server.settings
    return {
        "server": {
            "disque_version": __version__,
            "rq_version": __version__,
            "process_id": os.getpid(),
            "run_id": server.node.node_id,
            "tcp_port": settings.port,
            "uptime_in_seconds": int(time.time() - server.began),
        },
        "clients": {
            "connected_clients": len(server.connections),
            "blocked_clients": server.node.blocked,
        },
        "memory": {
            "used_memory": server.used_memory,
            "maxmemory": settings.maxmemory,
        },
        "jobs": {"registered_jobs": len(jobs.by_id)},
        "queues": {"registered_queues": len(jobs.queues)},
        "persistence": {
            "loading": 0,
            "aof_enabled": 1,
            "aof_state": "on",
            "appendfsync": settings.appendfsync,
            "snapshots": server.store.snapshots,
        },
        "stats": {"total_commands_processed": server.commands},
    }


def config(server: Server, connection: Connection, args: Args) -> Value:
    """CONFIG GET PATTERN; what may be set is in config/broker.json."""
    word = args[0].upper()
    if word == b"GET" and len(args) == 2:
        pattern = args[1].decode(errors="replace").lower()
        settings = _config(server)
        return [
            text
            for name, value in settings.items()
            if fnmatchcase(name, pattern)
            for text in (name, value)
        ]
    if word == b"RESETSTAT" and len(args) == 1:
        server.commands = 0
        return OK
    if word in (b"GET", b"RESETSTAT"):
        raise Refusal(f"ERR Wrong number of arguments for CONFIG {word.decode()}")
    raise Refusal("ERR CONFIG subcommand must be one of GET, RESETSTAT")


def _config(server: Server) -> dict[str, str]:
    settings = server.settings
    return {
        "port": str(settings.port),
        "bind": settings.addr,
        "maxmemory": str(settings.maxmemory),
        "maxclients": str(settings.maxclients),
        "appendonly": "yes",
        "appendfsync": settings.appendfsync,
    }


def cluster(server: Server, connection: Connection, args: Args) -> Value:
    """CLUSTER MYID, NODES and INFO of a node that is alone."""
    node_id = server.node.node_id
    match [word.upper() for word in args]:
        case [b"MYID"]:
            return node_id
        case [b"NODES"]:
            return f"{node_id} :{server.settings.port} myself 0 0 connected\n"
        case [b"INFO"]:
            return (
                "cluster_state:ok\r\ncluster_known_nodes:1\r\n"
                "cluster_reachable_nodes:0\r\ncluster_size:1\r\n"
                "cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
            )
    raise Refusal("ERR Wrong CLUSTER subcommand or number of arguments")


def broker(server: Server, connection: Connection, args: Args) -> Value:
    """BROKER QUEUES, BROKER CLIENTS: what RQ's own pages and verbs show."""
    match [word.upper() for word in args]:
        case [b"QUEUES"]:
            rows = queue_list.rows(server.node, server.store.clock.now())
            return [list(row) for row in islice(rows, _MOST_ROWS)]
        case [b"CLIENTS"]:
            others = (
                each for each in server.connections.values() if each != connection
            )
            return [_of_client(server, each) for each in islice(others, _MOST_ROWS)]
    raise Refusal("ERR BROKER subcommand must be one of QUEUES, CLIENTS")


def _of_client(server: Server, connection: Connection) -> Value:
    age = int(server.store.clock.now() - connection.began)
    waits = int(connection.waits)
    last = connection.last_command
    return [connection.number, connection.name, connection.address, age, waits, last]


def debug(server: Server, connection: Connection, args: Args) -> Value:
    """DEBUG FLUSHALL: remove all jobs and queues."""
    if not connection.is_trusted:
        raise Refusal("NOAUTH Authentication required.")
    match [args[0].upper(), *args[1:]]:
        case [b"FLUSHALL"]:
            server.node.flush(server.store.clock.now())
            return OK
        case [b"ERROR", text]:
            raise Refusal(text.decode(errors="replace"))
    word = args[0].decode(errors="replace")
    raise Refusal(
        f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{word:.64}'"
    )


def shutdown(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """End the broker; the supervisor starts it again, unless it is disabled."""
    if not connection.is_trusted:
        raise Refusal("NOAUTH Authentication required.")
    if args and (len(args) > 1 or args[0].upper() != b"REWRITE-AOF"):
        raise Refusal(SYNTAX)
    if not server.stop.done():
        server.stop.set_result(None)
    return Blocked()


TABLE: Mapping[bytes, AdminCommand] = {
    b"AUTH": AdminCommand(auth, -2),
    b"HELLO": AdminCommand(hello, -1),
    b"QUIT": AdminCommand(quit_, -1),
    b"PING": AdminCommand(ping, -1),
    b"TIME": AdminCommand(clock, 1),
    b"CLIENT": AdminCommand(client, -2),
    b"COMMAND": AdminCommand(command, -1),
    b"INFO": AdminCommand(info, -1),
    b"CONFIG": AdminCommand(config, -2),
    b"BROKER": AdminCommand(broker, -2),
    b"CLUSTER": AdminCommand(cluster, -2),
    b"DEBUG": AdminCommand(debug, -2),
    b"SHUTDOWN": AdminCommand(shutdown, -1),
}
