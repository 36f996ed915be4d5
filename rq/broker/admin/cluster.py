"""CLUSTER … and DISQUE …: the node, which is alone. Source: spec/resp.md 1.13."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from rq.access.roles import Role
from rq.broker.admin.command import Args, require
from rq.broker.connection import Connection
from rq.broker.dialects.call import SYNTAX, Refusal, whole
from rq.resp import OK, Status, Value

if TYPE_CHECKING:
    from rq.broker.server import Server

_ID = 40  # characters of a node's id
_LAST_PORT = 55_535  # the bus of a node is 10,000 above its port


def cluster(server: Server, connection: Connection, args: Args) -> Value:
    """Tell of the node, or change what it is to others."""
    match [args[0].upper(), *args[1:]]:
        case [b"MYID"]:
            return server.node.node_id
        case [b"NODES"]:
            return _nodes(server)
        case [b"INFO"]:
            return _info()
        case [b"LEAVING"]:
            return Status("yes" if server.node.jobs.leaving else "no")
        case words:
            require(connection, Role.ADMIN, "CLUSTER")
            return _change(server, words)


def _nodes(server: Server) -> str:
    flags = "myself,leaving" if server.node.jobs.leaving else "myself"
    port = server.settings.port
    return f"{server.node.node_id} :{port} {flags} 0 0 connected\n"


def _info() -> str:
    facts = {
        "cluster_state": "ok",
        "cluster_known_nodes": 1,
        "cluster_reachable_nodes": 0,
        "cluster_size": 1,
        "cluster_stats_messages_sent": 0,
        "cluster_stats_messages_received": 0,
    }
    return "".join(f"{name}:{value}\r\n" for name, value in facts.items())


def _change(server: Server, words: Args) -> Value:
    match words:
        case [b"MEET", address, port]:
            _meet(address, port)
        case [b"FORGET", node_id]:
            _forget(server, node_id)
        case [b"LEAVING", answer]:
            _leave(server, answer)
        case [b"RESET", *options]:
            _reset(server, options)
        case [b"SAVECONFIG"]:
            pass  # what is to be kept is kept
        case _:
            raise Refusal("ERR Wrong CLUSTER subcommand or number of arguments")
    return OK


def _meet(address: bytes, port: bytes) -> None:
    host, typed = (word.decode(errors="replace") for word in (address, port))
    number = whole(port)
    if number is None:
        raise Refusal(f"ERR Invalid TCP port specified: {typed:.64}")
    try:
        ipaddress.ip_address(host)
        is_valid = 1 <= number <= _LAST_PORT
    except ValueError:
        is_valid = False
    if not is_valid:
        raise Refusal(f"ERR Invalid node address specified: {host:.64}:{typed:.64}")
    raise Refusal("ERR this node runs alone: nodes do not yet copy jobs to each other")


def _forget(server: Server, node_id: bytes) -> None:
    if len(node_id) != _ID:
        raise Refusal("ERR Invalid node identifier")
    text = node_id.decode(errors="replace")
    if text == server.node.node_id:
        raise Refusal("ERR I tried hard but I can't forget myself...")
    raise Refusal(f"ERR Unknown node {text}")


def _leave(server: Server, answer: bytes) -> None:
    if answer.lower() not in (b"yes", b"no"):
        raise Refusal("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    server.node.desk.leave(answer.lower() == b"yes", server.store.clock.now())


def _reset(server: Server, options: Args) -> None:
    """Remove all jobs and queues; HARD: and be another node."""
    hard = [option.upper() for option in options]
    if hard not in ([], [b"SOFT"], [b"HARD"]):
        raise Refusal(SYNTAX)
    server.node.desk.flush(server.store.clock.now())
    if hard == [b"HARD"]:
        server.node.node_id = server.store.new_node_id()


# ---- DISQUE


def disque(server: Server, connection: Connection, args: Args) -> Value:
    """DISQUE INFO [name], DISQUE FLUSHALL: as the module of 2020 has them."""
    jobs = server.node.jobs
    figures = {
        "cluster.nodes.reachable": 0,
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
