"""What RQ's own pages and verbs show of the nodes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rq.broker.cluster.member import Member
from rq.resp import Value

if TYPE_CHECKING:
    from rq.broker.server import Server

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
    last answer (-1: there was none), bytes that wait for it, and messages that it was not
    sent for want of room."""
    members, node = server.cluster.members, server.node
    mine = ["myself", *(["leaving"] if node.jobs.leaving else [])]
    host, port = members.address.host, server.settings.port
    this: Value = [node.node_id, host, port, mine, 1, -1, 0, 0, 0]
    now = server.store.clock.now()
    return [this, *(_row(server, each, now) for each in members.by_id.values())]


def _row(server: Server, member: Member, now: float) -> Value:
    bus = server.cluster.bus
    waiting, lost = (0, 0) if bus is None else bus.outbox_of(member.node_id)
    silent = int((now - member.silent_since) * 1000) if member.silent_since else -1
    lag = int(member.lag * 1e6) if member.pong_at else -1
    host, port, _ = member.address
    facts = [int(member.is_linked), silent, lag, waiting, lost]
    return [member.node_id, host, port, flags_of(member), *facts]


def silent(server: Server) -> str:
    """Return the addresses of some members that do not answer."""
    members = [m for m in server.cluster.members.by_id.values() if m.is_doubted]
    names = [f"{m.address.host}:{m.address.port}" for m in members[:_MOST_NAMED]]
    return ", ".join([*names, *(["…"] if len(members) > _MOST_NAMED else [])])
