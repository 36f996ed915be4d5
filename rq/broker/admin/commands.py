"""COMMAND …: which commands there are, how many words they take, and what they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rq.broker.clients.connection import Connection
from rq.broker.dialects.call import (
    SYNTAX,
    Call,
    Command,
    Places,
    Refusal,
    at_most,
    fitting,
)
from rq.broker.server import AdminCommand, Args, Server
from rq.broker.state.bounds import MOST_ROWS
from rq.resp import Status, Value

Entry = Command | AdminCommand


def command(server: Server, connection: Connection, args: Args) -> Value:
    """Tell of all commands, or of those that are named."""
    table = server.commands
    if not args:
        return [_info(name, entry) for name, entry in table.items()]
    words = at_most(MOST_ROWS, args[1:], "names")
    match [args[0].upper(), *words]:
        case [b"COUNT"]:
            return len(table)
        case [b"INFO", *names]:
            upper = [name.upper() for name in names] or list(table)
            return [
                _info(name, table[name]) if name in table else None for name in upper
            ]
        case [b"DOCS", *names]:
            return _docs(table, [name.upper() for name in names] or table)
        case [b"LIST", *how] if len(how) in (0, 3):
            return _list(table, how)
        case [b"GETKEYS", name, *rest]:
            return list(
                _keys(table.get(name.upper()), server.as_call(connection, rest))
            )
        case [b"GETKEYSANDFLAGS", name, *rest]:
            flags: Value = _key_flags(table.get(name.upper()))
            call = server.as_call(connection, rest)
            return [[key, flags] for key in _keys(table.get(name.upper()), call)]
    word = args[0].decode(errors="replace")
    raise Refusal(
        f"ERR Unknown subcommand or wrong number of arguments for '{word:.64}'"
    )


def _list(table: Mapping[bytes, Entry], how: Sequence[bytes]) -> Value:
    """Return names: all, or those that fit `FILTERBY MODULE|ACLCAT|PATTERN text`."""
    names = {name.decode().lower(): entry for name, entry in table.items()}
    if not how:
        return list(names)
    match [how[0].upper(), how[1].upper(), how[2]]:
        case [b"FILTERBY", b"PATTERN", pattern]:
            return sorted(fitting(names, pattern))
        case [b"FILTERBY", b"ACLCAT", category]:
            wanted = f"@{category.decode(errors='replace').lower().removeprefix('@')}"
            return sorted(n for n, entry in names.items() if _category(entry) == wanted)
        case [b"FILTERBY", b"MODULE", _]:
            return []
    raise Refusal(SYNTAX)


def _keys(entry: Entry | None, call: Call) -> Sequence[bytes]:
    """Return the names of queues that a command has."""
    if entry is None:
        raise Refusal("ERR Invalid command specified")
    if _places(entry) is None and not _is_moving(entry):
        raise Refusal("ERR The command has no key arguments")
    if not entry.takes(1 + len(call.args)):
        raise Refusal("ERR Invalid number of arguments specified for command")
    return (isinstance(entry, Command) and entry.queues_of(call)) or []


def _places(entry: Entry) -> Places | None:
    return entry.queues if isinstance(entry, Command) else None


def _is_moving(entry: Entry) -> bool:
    """Whether names of queues stand behind options."""
    return isinstance(entry, Command) and entry.named is not None


def _info(name: bytes, entry: Entry) -> Value:
    """Return what Redis 7 tells of a command: name, arity, flags, where the names of
    queues are, category, tips, where they are in detail, and subcommands."""
    flags = [Status(flag) for flag in _flags(entry)]
    first, last, step = _places(entry) or (0, 0, 0)
    category: Value = [Status(_category(entry))]
    return [
        *(name.decode().lower(), entry.arity, flags, first, last, step),
        *(category, [], _key_specs(name, entry), []),
    ]


def _flags(entry: Entry) -> Iterable[str]:
    if isinstance(entry, AdminCommand):
        return ["admin", "noscript"]
    return [
        "write" if entry.writes else "readonly",
        *(["denyoom"] if entry.grows else []),
        *(["movablekeys"] if _is_moving(entry) else []),
    ]


def _category(entry: Entry) -> str:
    if isinstance(entry, AdminCommand):
        return "@admin"
    return "@write" if entry.writes else "@read"


def _key_flags(entry: Entry | None) -> Value:
    writes = isinstance(entry, Command) and entry.writes
    return [Status("RW"), Status("UPDATE")] if writes else [Status("RO")]


def _key_specs(name: bytes, entry: Entry) -> list[Value]:
    """Return where the names of queues are, in the form that finds them behind options."""
    if (places := _places(entry)) is not None:
        first, last, step = places
        search: Value = {"type": "index", "spec": {"index": first}}
        keys = _range(last if last < 0 else last - first, step)
    elif name == b"GETJOB":
        search = {"type": "keyword", "spec": {"keyword": "FROM", "startfrom": 1}}
        keys = _range(-1, 1)
    elif _is_moving(entry):
        search = keys = {"type": "unknown", "spec": {}}
    else:
        return []
    return [
        {"flags": _key_flags(entry), "begin_search": search, "find_keys": keys},
    ]


def _range(last: int, step: int) -> Value:
    return {"type": "range", "spec": {"lastkey": last, "keystep": step, "limit": 0}}


def _docs(table: Mapping[bytes, Entry], names: Iterable[bytes]) -> Value:
    return {
        name.decode().lower(): _summary(table[name]) for name in names if name in table
    }


def _summary(entry: Entry) -> Value:
    text = " ".join((entry.function.__doc__ or "").partition("\n\n")[0].split())
    group = "server" if isinstance(entry, AdminCommand) else "queue"
    return {"summary": text, "since": "1.0.0", "group": group}
