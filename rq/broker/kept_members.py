"""Who belongs to the cluster, on disk: a file of the node's directory."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import cast

from rq import durable
from rq.broker.cluster.gossip import Address
from rq.broker.place import MEMBERS, Place
from rq.errors import Damaged

_ID = 40  # lower hexadecimal digits


@dataclass(frozen=True, slots=True)
class Kept:
    """What a node keeps of its cluster."""

    host: str  # its own address, as others reach it; "": nobody has
    members: tuple[tuple[str, Address], ...]  # the others


def read(place: Place) -> Kept:
    """Return what is kept. Damaged: it cannot be believed."""
    try:
        content = json.loads(place.members.read_bytes())
        rows = [_member(row) for row in content["members"]]
        return Kept(_host(content["host"]), tuple(rows))
    except FileNotFoundError:
        return Kept("", ())
    except (ValueError, LookupError, TypeError) as error:
        raise Damaged(
            f"{place.members} is not what this node has written ({error}): remove it, and "
            "let the node meet the others again"
        ) from None


def write(dir_fd: int, kept: Kept) -> None:
    """Keep it, durably, in the directory of the node. OSError: the disk does not take it."""
    rows = [{"id": node_id, **address._asdict()} for node_id, address in kept.members]
    text = json.dumps({"host": kept.host, "members": rows}, indent=1)
    durable.replace_durable(MEMBERS, f"{text}\n".encode(), dir_fd)


def _member(row: object) -> tuple[str, Address]:
    content = cast("dict[str, object]", row)
    node_id = str(content["id"])
    if len(node_id) != _ID or set(node_id) - set("0123456789abcdef"):
        raise ValueError(f"{node_id!r:.60} is no id of a node")
    ports = [content["port"], content["bus_port"]]
    port, bus_port = (each for each in ports if isinstance(each, int))
    return node_id, Address(_host(content["host"]), port, bus_port)


def _host(text: object) -> str:
    return str(ipaddress.ip_address(str(text))) if text else ""
