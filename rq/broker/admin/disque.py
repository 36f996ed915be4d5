"""DISQUE …: what the module of 2020 tells of itself."""

from __future__ import annotations

from rq.access.roles import Role
from rq.broker.connection import Connection
from rq.broker.dialects.call import Refusal
from rq.broker.rights import require, require_all_queues
from rq.broker.server import Args, Server
from rq.resp import OK, Value


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
