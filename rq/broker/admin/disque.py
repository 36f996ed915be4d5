"""DISQUE …: what the module of 2020 tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rq.access.roles import Role
from rq.broker.admin.command import Args, require, require_all_queues
from rq.broker.connection import Connection
from rq.broker.dialects.call import Refusal
from rq.resp import OK, Value

if TYPE_CHECKING:
    from rq.broker.server import Server


def disque(server: Server, connection: Connection, args: Args) -> Value:
    """DISQUE INFO [name], DISQUE FLUSHALL: as the module of 2020 has them."""
    require_all_queues(connection, "DISQUE")
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
            require(connection, Role.ADMIN, "DISQUE FLUSHALL")
            server.node.desk.flush(server.store.clock.now())
            return OK
    raise Refusal("ERR Unknown DISQUE subcommand")
