"""What nodes say to each other about nodes. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Address(NamedTuple):
    """Where a node is reached."""

    host: str  # an IP address; "": not known yet
    port: int  # for clients
    bus_port: int  # for other nodes


class Rumour(NamedTuple):
    """What a node holds of another one."""

    node: str
    address: Address
    suspected: bool
    failed: bool


# What a node says of the receiver, in each greeting: that it takes, and sends, marks
# (`messages.Mark`). Nodes of an earlier version pass over what is said of themselves, and
# say nothing of the receiver.
MARKS = Address("", 0, 1)


class Kind(IntEnum):
    """Why a greeting is sent."""

    PING = 0  # to be answered with PONG
    PONG = 1
    MEET = 2  # as PING, and the receiver is to take in the sender


class Greeting(NamedTuple):
    """PING, PONG or MEET: what the sender is, and what it holds of some others."""

    kind: Kind
    port: int  # the sender's
    bus_port: int
    leaving: bool
    rumours: tuple[Rumour, ...]
    lines: int = 0  # durable lines of the sender's journal, since ever
    remembers: int = 0  # the most lines that the receiver has told the sender of


class HasFailed(NamedTuple):
    """Most nodes do not reach this one any more (FAIL)."""

    node: str


class Forget(NamedTuple):
    """A person lets a node no longer belong to the cluster; `is_done`: the sender has
    done so, as it was told."""

    node: str
    is_done: bool


Gossip = Greeting | HasFailed | Forget


class Ends(NamedTuple):
    """The IP addresses of a connection over which something came; "": not known."""

    here: str
    there: str
