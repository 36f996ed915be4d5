"""CLUSTER …: this node, and the others of its cluster."""

from __future__ import annotations

import ipaddress
import time

from rq.access.roles import Role
from rq.broker.admin.nodes import flags_of
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require
from rq.broker.cluster.gossip import Address
from rq.broker.cluster.members import Member
from rq.broker.dialects.call import SYNTAX, Blocked, Refusal, whole
from rq.broker.server import Args, Server
from rq.config.broker import BUS_ABOVE
from rq.errors import cause_of
from rq.resp import OK, Failure, Status, Value

_ID = 40  # characters of a node's id
_LAST_PORT = 65_535
_GOOD, _NO_LINK, _SUSPECTED, _BAD = 1, 5, 10, 100  # priorities of HELLO


def cluster(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Tell of the nodes, or change which there are."""
    match [args[0].upper(), *args[1:]]:
        case [b"MYID"]:
            return server.node.node_id
        case [b"NODES"]:
            return "".join(_rows(server))
        case [b"INFO"]:
            return _info(server)
        case [b"LEAVING"]:
            return Status("yes" if server.node.jobs.leaving else "no")
        case words:
            require(connection.principal, Role.ADMIN, "CLUSTER")
            return _change(server, connection, words)


def _rows(server: Server) -> list[str]:
    """Return a line of each node: id, address, flags, when it was pinged without an
    answer yet and when it answered last, in milliseconds of the epoch, and whether our
    connection to it stands."""
    members = server.cluster.members
    flags = "myself,leaving" if server.node.jobs.leaving else "myself"
    host, port = members.address.host, server.settings.port
    rows = [f"{server.node.node_id} {host}:{port} {flags} 0 0 connected\n"]
    now = server.store.clock.now()
    for member in members.by_id.values():
        address = member.address
        link = "connected" if member.is_linked else "disconnected"
        times = f"{_wall(member.silent_since, now)} {_wall(member.pong_at, now)}"
        rows.append(
            f"{member.node_id} {address.host}:{address.port} "
            f"{','.join(flags_of(member)) or 'noflags'} "
            f"{times} {link}\n"
        )
    return rows


def _wall(moment: float, now: float) -> int:
    """Return a moment of the broker's clock in milliseconds of the epoch; 0: never."""
    return int((time.time() + moment - now) * 1000) if moment else 0


def _info(server: Server) -> str:
    members, bus = server.cluster.members, server.cluster.bus
    facts = {
        "cluster_state": "ok",
        "cluster_known_nodes": 1 + len(members.by_id),
        "cluster_reachable_nodes": len(members.reachable),
        "cluster_size": members.size,
        "cluster_stats_messages_sent": 0 if bus is None else bus.sent,
        "cluster_stats_messages_received": 0 if bus is None else bus.received,
    }
    return "".join(f"{name}:{value}\r\n" for name, value in facts.items())


def hello(server: Server, connection: Connection) -> Value:
    """Return what Disque's HELLO says: all nodes, and how good it is to go there."""
    members = server.cluster.members
    name = connection.sock.getsockname()
    here = name[0] if isinstance(name, tuple) else ""
    mine = _BAD if server.node.jobs.leaving else _GOOD
    node_id, port = server.node.node_id, server.settings.port
    rows = [_row(node_id, members.address.host or here, port, mine)]
    for member in members.by_id.values():
        address = member.address
        rows.append(_row(member.node_id, address.host, address.port, _priority(member)))
    return [1, node_id, *rows]


def _row(node_id: str, host: str, port: int, priority: int) -> Value:
    return [node_id, host, str(port), str(priority)]


def _priority(member: Member) -> int:
    if member.failed or member.leaving:
        return _BAD
    if member.suspected:
        return _SUSPECTED
    return _GOOD if member.is_linked else _NO_LINK


# ---- changes


def _change(server: Server, connection: Connection, words: Args) -> Value | Blocked:
    match words:
        case [b"MEET", address, port]:
            return _meet(server, address, port, b"")
        case [b"MEET", address, port, bus_port]:
            return _meet(server, address, port, bus_port)
        case [b"FORGET", node_id]:
            _forget(server, node_id)
        case [b"LEAVING", answer]:
            return _leave(server, answer)
        case [b"RESET", *options]:
            _reset(server, options)
        case [b"SAVECONFIG"]:
            pass
        case _:
            raise Refusal("ERR Wrong CLUSTER subcommand or number of arguments")
    return server.scheduler.answer_later(connection, _kept(server))


async def _kept(server: Server) -> Value:
    """Answer when who belongs to the cluster is on disk."""
    try:
        await server.cluster.keep()
    except OSError as error:
        return Failure(f"MISCONF Errors writing the list of nodes: {cause_of(error)}")
    return OK


def _meet(server: Server, host: bytes, port: bytes, bus_port: bytes) -> Value:
    """Begin to know a node: its address, its port for clients, and that for nodes, where
    that is not 10,000 above."""
    address = _address(host, port, bus_port)
    if server.cluster.bus is None:
        raise Refusal(
            "ERR this node has no port for other nodes: set `secret_file`, or `bus_port`"
        )
    server.cluster.members.meet(address, server.store.clock.now())
    return OK


def _address(host: bytes, port: bytes, bus_port: bytes) -> Address:
    typed = host.decode(errors="replace")
    numbers = [_port(port)]
    numbers.append(_port(bus_port) if bus_port else numbers[0] + BUS_ABOVE)
    try:
        literal = str(ipaddress.ip_address(typed))
        is_valid = all(1 <= number <= _LAST_PORT for number in numbers)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise Refusal(f"ERR Invalid node address specified: {typed:.64}:{numbers[0]}")
    return Address(literal, numbers[0], numbers[1])


def _port(data: bytes) -> int:
    if (number := whole(data)) is None:
        typed = data.decode(errors="replace")
        raise Refusal(f"ERR Invalid TCP port specified: {typed:.64}")
    return number


def _forget(server: Server, node_id: bytes) -> None:
    if len(node_id) != _ID:
        raise Refusal("ERR Invalid node identifier")
    text = node_id.decode(errors="replace")
    if text == server.node.node_id:
        raise Refusal("ERR I tried hard but I can't forget myself...")
    if text not in server.cluster.members.by_id:
        raise Refusal(f"ERR Unknown node {text}")
    server.cluster.members.forget(text, server.store.clock.now())


def _leave(server: Server, answer: bytes) -> Value:
    if answer.lower() not in (b"yes", b"no"):
        raise Refusal("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    server.node.desk.leave(answer.lower() == b"yes", server.store.clock.now())
    return OK


def _reset(server: Server, options: Args) -> None:
    """Remove all jobs and queues, and forget all nodes; HARD: and be another node."""
    hard = [option.upper() for option in options]
    if hard not in ([], [b"SOFT"], [b"HARD"]):
        raise Refusal(SYNTAX)
    server.node.desk.flush(server.store.clock.now())
    if hard == [b"HARD"]:
        server.node.node_id = server.store.new_node_id()
    server.cluster.reset()
