"""What a broker tells of queues, clients, nodes and jobs."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue of the broker."""

    dialect: str
    name: str  # bytes that are no UTF-8 as \\xNN
    waits: int
    handed_out: int  # or delayed
    consumers: int  # that wait for something to come
    came: int  # since the broker has started
    went: int
    paused: str  # none, in, out or all
    oldest: int  # seconds that its first has been there
    in_rate: float  # a second, of late
    out_rate: float
    address: str  # its name, as `address_of` writes it

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Minutes:
    """What moved in a queue in each minute of the last hour, this one last."""

    came: list[int]
    went: list[int]
    waits: list[int]


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client of the broker."""

    number: int
    name: str
    address: str
    seconds: int  # since it came
    waits: bool  # for something to come
    last: str  # its last command

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of the broker's cluster."""

    id: str
    address: str  # HOST:PORT; the host is "" until another node has told it
    flags: list[str]  # in Disque's words: myself, fail?, fail, handshake, leaving
    linked: bool  # our connection to it stands
    silent: float  # seconds that it should have answered; -1: it has
    lag: float  # seconds until its last answer; -1: there was none
    waiting_bytes: int  # to be sent to it
    lost: int  # messages that there was no room for
    bus: str  # HOST:PORT where other nodes come in
    linked_back: bool  # its connection to us stands
    why: str  # our connection does not stand; "": it does, or nobody knows

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HeldRow:
    """What a node holds of a queue; or of all, under no name."""

    dialect: str
    name: str
    here: int  # jobs of which no other node is sure to have a copy
    waits: int  # of these, in the queue
    copied: int  # jobs of which others keep copies
    acked: int  # jobs that are done, which others still have to be told

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ToldRow:
    """Whether another node has done what all were told to do."""

    id: str
    address: str
    is_done: bool


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a list."""

    id: str
    body: str  # its start
    body_bytes: int
    seconds: int  # that it is there, or handed out; -1: nobody knows
    times: int  # that it was handed out, or refused, before
    waits: bool  # else it is handed out
    address: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A node that may have a job."""

    id: str
    address: str  # ":0" when it is forgotten
    flags: list[str]  # as of a node, or "forgotten"
    is_confirmed: bool  # that it has its copy, or knows that the job is done

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of Disque's dialect; all times are seconds."""

    id: str
    queue: str
    state: str
    created: float  # of the epoch, by the clock on the wall then
    age: int
    ttl: int  # that are left
    delay: int
    retry: int
    was_queued: bool
    was_given: bool
    deliveries: int  # that there were
    nacks: int  # of these, given back as failed
    lost: int  # of these, came again without an answer
    comes_in: int  # until it comes into its queue again; -1: never
    paused: str  # as of a queue
    wanted: int  # copies that its producer asked for
    copies: list[CopyRow]  # the node that answers first
    body: str  # its start
    body_bytes: int
    is_cut: bool
    address: str
    queue_address: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)
