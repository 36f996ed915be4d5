"""What RQ's own pages and verbs show of the nodes of a cluster."""

from __future__ import annotations

from rq.broker.cluster.gossip import Address
from rq.broker.cluster.members import Member
from rq.broker.server import Server
from rq.broker.state.spread import Spread
from rq.errors import cause_of
from rq.resp import Failure, Value

MYSELF = ["myself"]
_MOST_NAMED = 5  # nodes that do not answer


def flags_of(member: Member) -> list[str]:
    """Return what is to be said of a member, in Disque's words."""
    flags = {
        "fail?": member.suspected,
        "fail": member.failed,
        "handshake": member.in_handshake,
        "noaddr": not member.address.host,
        "leaving": member.leaving,
    }
    return [name for name, is_set in flags.items() if is_set]


def rows(server: Server) -> list[Value]:
    """Return of each node, this one first: id, host, port, flags, whether our link to it
    stands, milliseconds that it should have answered (-1: it has), microseconds of its
    last answer (-1: there was none), bytes that wait for it, messages that it was not
    sent for want of room, its port for nodes, whether its link to us stands, and why
    ours does not."""
    members, node = server.cluster.members, server.node
    mine = [*MYSELF, *(["leaving"] if node.jobs.leaving else [])]
    host, _, bus_port = members.address
    port = server.settings.port
    this: Value = [node.node_id, host, port, mine, 1, -1, 0, 0, 0, bus_port, 1, ""]
    now = server.store.clock.now()
    return [this, *(_row(server, each, now) for each in members.by_id.values())]


def _row(server: Server, member: Member, now: float) -> Value:
    bus = server.cluster.bus
    waiting, lost = (0, 0) if bus is None else bus.outbox_of(member.node_id)
    silent = int((now - member.silent_since) * 1000) if member.silent_since else -1
    lag = int(member.lag * 1e6) if member.pong_at else -1
    host, port, bus_port = member.address
    stands = member.is_linked and (member.is_kept or member.in_handshake)
    facts = [int(stands), silent, lag, waiting, lost]
    back = bus is not None and bus.is_linked_from(member.node_id)
    link: list[Value] = [bus_port, int(back), "" if stands else _why(server, member)]
    return [member.node_id, host, port, flags_of(member), *facts, *link]


def _why(server: Server, member: Member) -> str:
    """Return why no copies go over our link to a member; "": not known."""
    if member.is_linked:
        return "that it is a member is not on our disk yet"
    bus = server.cluster.bus
    return "" if bus is None else bus.trouble_of(member.node_id)


def copies(server: Server, spread: Spread | None) -> list[Value]:
    """Return of each node that may have a job, this one first: id, address, what is to be
    said of the node, and whether it has confirmed: that it has its copy, while the
    producer waits for that; or that the job is done, once it is acknowledged."""
    members, mine = server.cluster.members, server.node.node_id
    names = frozenset({mine}) if spread is None else spread.may_have
    confirmed = frozenset[str]() if spread is None else spread.confirmed
    rows: list[Value] = []
    for name in sorted(names, key=lambda name: (name != mine, name)):
        member = members.by_id.get(name)
        if name == mine:
            address, flags = members.address._replace(port=server.settings.port), MYSELF
        elif member is None:
            address, flags = Address("", 0, 0), ["forgotten"]
        else:
            address, flags = member.address, flags_of(member)
        rows.append(
            [name, address.host, address.port, list(flags), int(name in confirmed)]
        )
    return rows


def linked(server: Server) -> int:
    """Return to how many members our link stands."""
    return sum(m.is_linked for m in server.cluster.members.by_id.values())


async def forget(server: Server, data: bytes) -> Value:
    """Let all nodes forget one; return of each other node id, address, and whether it
    has done so."""
    node_id, members = data.decode(errors="replace"), server.cluster.members
    if not members.is_member(node_id):
        return Failure(f"ERR Unknown node {node_id:.64}")
    addresses = {name: members.by_id[name].address for name in members.others}
    try:
        answers = await server.cluster.forget(node_id)
    except OSError as error:
        return Failure(f"MISCONF Errors writing the list of nodes: {cause_of(error)}")
    return [
        [name, f"{addresses[name].host}:{addresses[name].port}", int(is_done)]
        for name, is_done in answers
    ]


def silent(server: Server) -> str:
    """Return the addresses of some members that do not answer."""
    members = [m for m in server.cluster.members.by_id.values() if m.is_doubted]
    names = [f"{m.address.host}:{m.address.port}" for m in members[:_MOST_NAMED]]
    return ", ".join([*names, *(["…"] if len(members) > _MOST_NAMED else [])])
