"""INFO, and DISQUE of the module of 2020: what the broker tells of itself."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rq import __version__
from rq.access.roles import Role
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require, require_all_queues
from rq.broker.dialects.call import SYNTAX, Refusal
from rq.broker.server import Args, Server
from rq.resp import OK, Value

Facts = Mapping[str, object]
_DAY = 86_400
# Figures of all queues, which are not for a user of some queues alone.
_OF_ALL = frozenset({"clients", "memory", "jobs", "queues", "stats", "commandstats"})


def info(server: Server, connection: Connection, args: Args) -> Value:
    """Tell of a section, or of most, or of all: lines of names and values."""
    if len(args) > 1:
        raise Refusal(SYNTAX)
    wanted = args[0].decode(errors="replace").lower() if args else "default"
    chosen = [wanted]
    if wanted in ("default", "all", "everything"):
        chosen = [s for s in _SECTIONS if s != "commandstats" or wanted != "default"]
    if not connection.may_all(Role.VIEWER):
        chosen = [s for s in chosen if s not in _OF_ALL]
    texts = [_section(s, _SECTIONS[s](server)) for s in chosen if s in _SECTIONS]
    return "\r\n".join(texts)


def _section(name: str, facts: Facts) -> str:
    return f"# {name.capitalize()}\r\n" + "".join(
        f"{key}:{value}\r\n" for key, value in facts.items()
    )


def _server(server: Server) -> Facts:
    uptime = int(time.time() - server.began)
    return {
        "disque_version": __version__,
        "rq_version": __version__,
        "os": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "python_version": sys.version.split()[0],
        "process_id": os.getpid(),
        "run_id": server.node.node_id,
        "tcp_port": server.settings.port,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // _DAY,
        "config_file": server.config_file,
    }


def _clients(server: Server) -> Facts:
    every = server.connections.values()
    return {
        "connected_clients": len(server.connections),
        "maxclients": server.admission.places,
        "client_longest_output_list": max((each.answers for each in every), default=0),
        "client_biggest_input_buf": max((each.held for each in every), default=0),
        "client_largest_output": max((each.unsent for each in every), default=0),
        "blocked_clients": server.blocked,
        "monitors": len(server.figures.monitors),
        "strangers": len(server.admission.unauthenticated),
    }


def _memory(server: Server) -> Facts:
    return {
        "used_memory": server.node.used_memory,
        "used_memory_rss": _rss(),
        "maxmemory": server.settings.maxmemory,
    }


def _rss() -> int:
    """Return the bytes of memory that the process takes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _jobs(server: Server) -> Facts:
    return {"registered_jobs": len(server.node.jobs.by_id)}


def _queues(server: Server) -> Facts:
    return {"registered_queues": len(server.node.jobs.queues)}


def _persistence(server: Server) -> Facts:
    trouble = server.durability.trouble
    return {
        "loading": 0,
        "aof_enabled": 1,
        "aof_state": "on",
        "appendfsync": server.settings.appendfsync,
        "aof_last_write_status": "err" if trouble else "ok",
        "snapshots": server.store.snapshots,
        "expiry_waits_seconds": round(server.store.clock.grace),
    }


def _stats(server: Server) -> Facts:
    figures = server.figures
    return {
        "total_connections_received": server.admission.accepted,
        "rejected_connections": server.admission.refused,
        "total_commands_processed": figures.commands,
        "instantaneous_ops_per_sec": figures.per_second(time.monotonic()),
        "total_jobs_in": server.node.traffic.came,
        "total_jobs_out": server.node.traffic.went,
        "slowlog_len": figures.slow_count,
    }


def _cpu(server: Server) -> Facts:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "used_cpu_sys": f"{used.ru_stime:.2f}",
        "used_cpu_user": f"{used.ru_utime:.2f}",
    }


def _commandstats(server: Server) -> Facts:
    return {
        f"cmdstat_{name.decode().lower()}": (
            f"calls={cost.calls},usec={cost.seconds * 1e6:.0f},"
            f"usec_per_call={cost.seconds * 1e6 / cost.calls:.2f},"
            f"rejected_calls={cost.refused}"
        )
        for name, cost in sorted(server.figures.costs.items())
    }


_SECTIONS: Mapping[str, Callable[[Server], Facts]] = {
    "server": _server,
    "clients": _clients,
    "memory": _memory,
    "jobs": _jobs,
    "queues": _queues,
    "persistence": _persistence,
    "stats": _stats,
    "cpu": _cpu,
    "commandstats": _commandstats,
}


def disque(server: Server, connection: Connection, args: Args) -> Value:
    """DISQUE INFO [name], DISQUE FLUSHALL: as the module of 2020 has them."""
    require_all_queues(connection.principal, "DISQUE")
    jobs = server.node.jobs
    figures = {
        "cluster.nodes.reachable": len(server.cluster.members.reachable),
        "jobs.registered": len(jobs.by_id),
        "queues.registered": len(jobs.queues),
    }
    match [args[0].upper(), *args[1:]]:
        case [b"INFO"]:
            return [f"{name}:{value}" for name, value in figures.items()]
        case [b"INFO", name]:
            return figures.get(name.decode(errors="replace").lower())
        case [b"FLUSHALL"]:
            require(connection.principal, Role.ADMIN, "DISQUE FLUSHALL")
            server.node.desk.flush(server.store.clock.now())
            return OK
    raise Refusal("ERR Unknown DISQUE subcommand")
