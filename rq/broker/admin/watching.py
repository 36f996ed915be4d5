"""MONITOR, SLOWLOG, LATENCY: what clients ask of the broker, and how long that takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rq.access.roles import Role
from rq.broker.admin.command import Args, require
from rq.broker.connection import Connection
from rq.broker.dialects.call import Refusal, whole
from rq.broker.figures import COMMAND, SlowCommand
from rq.broker.hidden import quoted, visible_words
from rq.resp import OK, Status, Value

if TYPE_CHECKING:
    from rq.broker.server import Server

_SLOW = 10  # commands that SLOWLOG GET shows, unless it says another number


def monitor(server: Server, connection: Connection, args: Args) -> Value:
    """Show all commands from now on."""
    require(connection, Role.ADMIN, "MONITOR")
    server.monitors[connection.number] = connection
    return OK


def show(server: Server, connection: Connection, command: Args) -> None:
    """Show a command to those who watch, as long as they may: a password may have been
    set since, or they may be somebody else by now."""
    words = " ".join(map(quoted, visible_words(command)))
    line = Status(f"{time.time():.6f} [0 {connection.address}] {words}")
    for watcher in list(server.monitors.values()):
        if watcher.may_all(Role.ADMIN):
            watcher.show(line)
        else:
            del server.monitors[watcher.number]


def note(server: Server, connection: Connection, command: Args, took: float) -> None:
    """Keep a command that was slow: `took` seconds."""
    settings = server.settings
    if 0 <= settings.slowlog_slower <= took * 1e6:
        who = connection.address, connection.name
        words = visible_words(command)
        at, most = int(time.time()), settings.slowlog_length
        server.figures.add_slow(at, int(took * 1e6), words, who, most)
    if settings.latency_threshold:
        note_time(server, COMMAND, took)


def note_time(server: Server, kind: str, took: float) -> None:
    """Keep a spike: `took` seconds in which all had to wait."""
    threshold = server.settings.latency_threshold
    if threshold and took * 1000 >= threshold:
        server.figures.add_spike(kind, took, int(time.time()))


def slowlog(server: Server, connection: Connection, args: Args) -> Value:
    """SLOWLOG GET, LEN, RESET: the commands that took longest of late."""
    require(connection, Role.ADMIN, "SLOWLOG")
    match [args[0].upper(), *args[1:]]:
        case [b"GET"]:
            return [_slow(slow) for slow in server.figures.slow(_SLOW)]
        case [b"GET", number]:
            count = whole(number)
            if count is None or count < -1:
                raise Refusal("ERR count should be greater than or equal to -1")
            most = server.figures.slow_count if count == -1 else count
            return [_slow(slow) for slow in server.figures.slow(most)]
        case [b"LEN"]:
            return server.figures.slow_count
        case [b"RESET"]:
            server.figures.forget_slow()
            return OK
    raise Refusal(
        "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
    )


def _slow(slow: SlowCommand) -> Value:
    words = list(slow.words)
    return [slow.number, slow.at, slow.microseconds, words, slow.address, slow.client]


def latency(server: Server, connection: Connection, args: Args) -> Value:
    """LATENCY LATEST, HISTORY, RESET: moments in which all had to wait."""
    figures = server.figures
    match [args[0].upper(), *args[1:]]:
        case [b"LATEST"]:
            return [
                [kind, *spikes[-1], figures.worst[kind]]
                for kind, spikes in figures.spikes.items()
            ]
        case [b"HISTORY", kind]:
            spikes = figures.spikes.get(kind.decode(errors="replace"), ())
            return [list(spike) for spike in spikes]
        case [b"RESET", *kinds]:
            require(connection, Role.ADMIN, "LATENCY RESET")
            named = [kind.decode(errors="replace") for kind in kinds]
            return figures.forget_spikes(named or list(figures.spikes))
        case [b"DOCTOR"]:
            return _doctor(server)
    raise Refusal(
        "ERR LATENCY subcommand must be one of LATEST, HISTORY, RESET, DOCTOR"
    )


def _doctor(server: Server) -> str:
    """Return what a person may do about the spikes."""
    threshold, worst = server.settings.latency_threshold, server.figures.worst
    if not threshold:
        return (
            "Nothing is watched: CONFIG SET latency-monitor-threshold <milliseconds> "
            "says from which time on."
        )
    if not worst:
        return f"Nothing took {threshold} ms since it is watched."
    return "\n".join(f"{kind}: up to {ms} ms" for kind, ms in worst.items())
