"""MONITOR, SLOWLOG, LATENCY: what clients ask of the broker, and how long that takes."""

from __future__ import annotations

from rq.access.roles import Role
from rq.broker.clients.connection import Connection
from rq.broker.clients.figures import SlowCommand
from rq.broker.clients.rights import require
from rq.broker.dialects.call import Refusal, whole
from rq.broker.server import Args, Server
from rq.resp import OK, Value

_SLOW = 10  # commands that SLOWLOG GET shows, unless it says another number


def monitor(server: Server, connection: Connection, args: Args) -> Value:
    """Show all commands from now on."""
    require(connection.principal, Role.ADMIN, "MONITOR")
    server.figures.monitors[connection.number] = connection
    return OK


def slowlog(server: Server, connection: Connection, args: Args) -> Value:
    """SLOWLOG GET, LEN, RESET: the commands that took longest of late."""
    require(connection.principal, Role.ADMIN, "SLOWLOG")
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
            require(connection.principal, Role.ADMIN, "LATENCY RESET")
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
