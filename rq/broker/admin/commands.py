"""COMMAND …: which commands there are, how many words they take, and what they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rq.broker import rights
from rq.broker.admin.command import MOST_ROWS, AdminCommand, Args, fitting
from rq.broker.connection import Connection
from rq.broker.dialects.call import Command, Refusal, at_most
from rq.broker.dialects.table import TABLE as DIALECTS
from rq.resp import Status, Value

if TYPE_CHECKING:
    from rq.broker.server import Server

Entry = Command | AdminCommand


def command(server: Server, connection: Connection, args: Args) -> Value:
    """Tell of all commands, or of those that are named."""
    table: Mapping[bytes, Entry] = {**DIALECTS, **server.admin}
    if not args:
        return [_info(name, entry) for name, entry in table.items()]
    match [args[0].upper(), *args[1:]]:
        case [b"COUNT"]:
            return len(table)
        case [b"INFO", *names]:
            at_most(MOST_ROWS, names, "names")
            return [
                _info(name.upper(), table[name.upper()])
                if name.upper() in table
                else None
                for name in names or table
            ]
        case [b"DOCS", *names]:
            return _docs(table, [name.upper() for name in names] or table)
        case [b"LIST"]:
            return [name.decode().lower() for name in table]
        case [b"LIST", kind, by, pattern] if (kind.upper(), by.upper()) == (
            b"FILTERBY",
            b"PATTERN",
        ):
            return sorted(fitting((name.decode().lower() for name in table), pattern))
    word = args[0].decode(errors="replace")
    raise Refusal(
        f"ERR Unknown subcommand or wrong number of arguments for '{word:.64}'"
    )


def _info(name: bytes, entry: Entry) -> Value:
    """Return name, arity, flags, and where the names of queues are."""
    flags = [Status(flag) for flag in _flags(entry)]
    first, last, step = rights.PLACES.get(name, (0, 0, 0))
    return [name.decode().lower(), entry.arity, flags, first, last, step]


def _flags(entry: Entry) -> Iterable[str]:
    if isinstance(entry, AdminCommand):
        return ["admin", "noscript"]
    return [
        "write" if entry.writes else "readonly",
        *(["denyoom"] if entry.grows else []),
    ]


def _docs(table: Mapping[bytes, Entry], names: Iterable[bytes]) -> Value:
    return {
        name.decode().lower(): _summary(table[name]) for name in names if name in table
    }


def _summary(entry: Entry) -> Value:
    text = " ".join((entry.function.__doc__ or "").partition("\n\n")[0].split())
    group = "server" if isinstance(entry, AdminCommand) else "queue"
    return {"summary": text, "since": "1.0.0", "group": group}
