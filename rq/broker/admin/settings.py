"""CONFIG …: what is set, and what may be set while the broker runs."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping

from rq.access.roles import Role
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require
from rq.broker.dialects.call import Blocked, Refusal, at_most, fitting, whole
from rq.broker.server import Args, Server
from rq.broker.state.bounds import MOST_PATTERNS
from rq.config import broker as config_of_broker
from rq.config import files, passwords
from rq.config.broker import BrokerConfig
from rq.errors import BadConfig
from rq.resp import OK, Failure, Value

_UNITS = {
    b"": 1,
    b"b": 1,
    b"k": 1000,
    b"kb": 1024,
    b"m": 1000**2,
    b"mb": 1024**2,
    b"g": 1000**3,
    b"gb": 1024**3,
}
_ALWAYS = {"save": "", "timeout": "0", "databases": "1"}  # what Redis lets one choose


def _memory(data: bytes) -> int | None:
    digits = data.rstrip(b"bkmgBKMG")
    unit = _UNITS.get(data[len(digits) :].lower())
    number = whole(digits) if digits else None
    return None if unit is None or number is None else number * unit


def _text(data: bytes) -> str:
    return data.decode(errors="replace").lower()


def _word(*words: str) -> Callable[[bytes], str | None]:
    return lambda data: _text(data) if _text(data) in words else None


def _number(least: int, most: int = 2**63) -> Callable[[bytes], int | None]:
    def read(data: bytes) -> int | None:
        number = whole(data) if data else None
        return number if number is not None and least <= number < most else None

    return read


_YES_OR_NO = _word("yes", "no")
# What Disque lets one set and this broker has no use for: it is told, and changes nothing.
# All that is answered is written, and what was queued is queued after any start. None of it
# outlives a restart: `aof-enqueue-jobs-once` turns itself off there, as it does in Disque.
_IDLE: Mapping[str, tuple[str, Callable[[bytes], object]]] = {
    "appendonly": ("yes", _YES_OR_NO),
    "aof-enqueue-jobs-once": ("no", _YES_OR_NO),
    "aof-load-truncated": ("yes", _YES_OR_NO),
    "aof-rewrite-incremental-fsync": ("yes", _YES_OR_NO),
    "auto-aof-rewrite-percentage": ("100", _number(0)),
    "auto-aof-rewrite-min-size": ("67108864", _memory),
    "activerehashing": ("yes", _YES_OR_NO),
    "client-output-buffer-limit": ("normal 0 0 0", _text),
    "hz": ("10", _number(1, 501)),
    "loglevel": ("notice", _word("debug", "verbose", "notice", "warning")),
    "maxmemory-samples": ("5", _number(1)),
    "tcp-keepalive": ("300", _number(0)),
    "watchdog-period": ("0", _number(0)),
}
# The names of CONFIG, the setting that they are, and how it is read.
_SETTABLE: Mapping[str, tuple[str, Callable[[bytes], object]]] = {
    "maxmemory": ("maxmemory", _memory),
    "maxmemory-policy": ("maxmemory_policy", _text),
    "maxclients": ("maxclients", whole),
    "login-timeout": ("login_timeout", whole),
    "appendfsync": ("appendfsync", _text),
    "cluster-node-timeout": ("node_timeout", whole),
    "slowlog-log-slower-than": ("slowlog_slower", whole),
    "slowlog-max-len": ("slowlog_length", whole),
    "latency-monitor-threshold": ("latency_threshold", whole),
}


def config(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Tell what is set; change it for now, or for ever."""
    word, count = args[0].upper(), len(args)
    if word == b"GET" and count > 1:
        settings = _settings(server)
        patterns = at_most(MOST_PATTERNS, args[1:], "patterns")
        wanted = set[str]().union(*(fitting(settings, each) for each in patterns))
        return {name: value for name, value in settings.items() if name in wanted}
    if (word, count) in ((b"SET", 3), (b"RESETSTAT", 1), (b"REWRITE", 1)):
        require(connection.principal, Role.ADMIN, f"CONFIG {word.decode()}")
        if word == b"SET":
            return _set(server, connection, _text(args[1]), args[2])
        return _rewrite(server, connection) if word == b"REWRITE" else _reset(server)
    if word in (b"GET", b"SET", b"RESETSTAT", b"REWRITE"):
        raise Refusal(f"ERR Wrong number of arguments for CONFIG {word.decode()}")
    raise Refusal("ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")


def _settings(server: Server) -> dict[str, str]:
    settings = server.settings
    return {
        "port": str(settings.port),
        "bind": settings.addr,
        "requirepass": "(hidden)" if server.door.has_password else "",
        **{name: str(getattr(settings, of)) for name, (of, _) in _SETTABLE.items()},
        **_ALWAYS,
        **{name: first for name, (first, _) in _IDLE.items()},
        **server.idle_settings,
    }


def _set(
    server: Server, connection: Connection, name: str, value: bytes
) -> Value | Blocked:
    if name == "requirepass":
        return server.scheduler.answer_later(
            connection, _use_password(server, connection, value)
        )
    if name in _ALWAYS and _text(value) == _ALWAYS[name]:
        return OK
    if not (name in _SETTABLE or name in _ALWAYS or name in _IDLE):
        raise Refusal(f"ERR Unsupported CONFIG parameter: {name:.64}")
    wanted = _changed(server.settings, name, value) if name in _SETTABLE else None
    if wanted is not None:
        server.use(wanted)
        return OK
    read_as = _IDLE[name][1](value) if name in _IDLE else None
    if read_as is None:
        text = value.decode(errors="replace")
        raise Refusal(f"ERR Invalid argument '{text:.64}' for CONFIG SET '{name}'")
    server.idle_settings[name] = f"{read_as}"[:256]
    return OK


def _changed(now: BrokerConfig, name: str, value: bytes) -> BrokerConfig | None:
    """Return the settings with another value of one; None when it cannot be that."""
    setting, read = _SETTABLE[name]
    given = {**now.to_json(), setting: read(value)}
    try:
        return config_of_broker.checked(given, "CONFIG SET")
    except BadConfig:
        return None


async def _use_password(server: Server, connection: Connection, value: bytes) -> Value:
    """Let in who has this password from now on. It takes long on purpose to make a hash."""
    try:
        password = value.decode()
    except UnicodeDecodeError:
        return Failure(
            "ERR Invalid argument for CONFIG SET 'requirepass': it is no text"
        )
    stored = await asyncio.to_thread(passwords.make, password) if password else ""
    wanted = dataclasses.replace(server.settings, password=stored)
    try:
        config_of_broker.check_door(wanted, has_users=server.door.has_users)
    except BadConfig as error:
        return Failure(f"ERR {error}")
    server.use(wanted)
    server.admission.use_password(stored, connection)
    return OK


def _rewrite(server: Server, connection: Connection) -> Blocked:
    """Keep what is set in the config file."""
    path = server.config_file

    async def write() -> Value:
        settings = server.settings.to_json()
        try:
            await asyncio.to_thread(files.write_secret_state, path, settings)
        except OSError as error:
            return Failure(f"ERR Rewriting config file: {path}: {error.strerror}")
        return OK

    return server.scheduler.answer_later(connection, write())


def _reset(server: Server) -> Value:
    server.figures.reset()
    return OK
