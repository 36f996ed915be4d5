"""The lines of a queue's journal, as types: what each of them may say.

They are dicts, made once and written as JSON: a class for each would be built and taken
apart again for every event. What docs/reference/journal.md says of each `ev` holds here.
"""

from __future__ import annotations

from typing import NotRequired, Protocol, TypedDict, Unpack

from rq.journal.line import Line
from rq.message.fields import JsonObject
from rq.words.nesting import Json
from rq.words.states import Note, State

# In a line read back: JSON, or as `fold.pack` leaves it. In one to be written: a fragment.
Content = object


class Facts(TypedDict, total=False):
    """What is known of an attempt that has ended, or did not begin."""

    cause: str
    outcome: str
    result: str  # a value that was said, for programs
    tries: int  # that `retry` allows, if it has decided
    text: str
    exit: int | None
    signal: str | None
    wait_us: int | None
    run_us: int
    cpu_us: int | None
    max_rss: int | None  # KiB
    created_us: int
    batch: str
    pid: int
    started: float  # epoch seconds, where it is not `run_us` before its end
    worker: int  # the slot of the long-lived worker that had it
    log: list[int | None]  # where its part of the log begins and ends; None: unknown


class OutEntry(TypedDict):
    """What a line owes to another queue: an entry of its field `out`."""

    dest: str
    message: JsonObject
    files: NotRequired[bool]  # the attachments go along
    bits: NotRequired[str]  # the end of its key
    like: NotRequired[int]  # the entry whose message holds the text of this one, too
    msg: NotRequired[str]  # added when it is read back: whose end owes it
    journal: NotRequired[str]  # added then, too: that the line is of


_From = TypedDict("_From", {"from": str}, total=False)
_Is = TypedDict("_Is", {"is": str}, total=False)


class LeaseFields(TypedDict, total=False):
    """The lease that a claim begins, or that an end of an attempt ends."""

    hash: str  # of its token
    by: str  # who holds it
    seconds: float
    lasts: float  # seconds after which the attempt is ended, whatever is renewed
    base: int  # bytes of its message's log before it
    key: str  # exclusion key
    riders: list[str]  # coalesced messages that wait for its end
    word: str  # in an end: a digest of what its holder has said
    # How often in a row the message was given back, uncounted; absent: never.
    untaken: int
    released: int


class More(_From, total=False):
    """Further fields of a line that changes the state of a message."""

    slot: int  # of the lease, in a claim
    batch: str  # that the message is claimed with
    lease: LeaseFields
    key: str  # under which it was accepted
    body: str  # with a key: the digest of what was sent
    # The key under which no equal message is accepted for a while; "": it is kept out.
    unique: str
    via: str  # "door", with `from`: its name in new/
    txn: str
    row: tuple[str, int]  # that the message was: the file of rows, its place there
    riders: list[str]  # which end with it
    rides: str  # its own full id, for those
    results: list[str]  # files of its attempt that become attachments
    out: list[OutEntry]
    news: JsonObject  # as `NewsFields` of `news`
    bulk: str  # of which it is, and …
    at: int  # … the place in its list
    failed_again: int  # of those before it in the list
    held: JsonObject | None  # by, why, since; None: it is released, …
    by: str  # … by somebody
    after: JsonObject  # end, by, at: it waits for no other message any more


class Word(TypedDict, total=False):
    """What a person has said of an entry of an outbox, and who."""

    said: str
    by: str


class NoteFields(_Is, Word, total=False):
    """Fields of a line that changes no state of its own."""

    msg: str  # that stands for what was sent …
    key: str  # … under this
    body: str
    txn: str
    ttl: float
    name: str  # the key of a transaction
    preparer: str  # the user who prepares in it; "": RQ itself
    head: str  # the transaction that decides for it
    chain: list[str]  # those that it decides for
    file: str  # of rows
    files: list[str]  # of rows that it accepts
    n: int
    sha256: str
    ids: list[str]
    manifest: bool
    of: int  # seq of the line that owes
    i: int  # which of its entries
    step: float
    reason: str
    bulk: str
    at: int  # messages of its list that were looked at
    failed_again: int  # of these
    action: str
    to: Json  # what it is done with: a time, a queue
    filter: JsonObject
    standings: list[list[str]]  # QUEUE/ID, and how it stands
    place: str  # QUEUE/ID under which `msg` goes on
    leases: list[str]  # digests of the tokens of leases
    seconds: float  # for which they go on
    out: list[OutEntry]
    news: JsonObject


class Record(Line, Facts, _From, _Is, total=False):
    """A line of a queue's journal."""

    queue: str
    msg: str
    msgs: list[str]
    state: str
    was: str
    count: int
    attempt: int
    due: float
    priority: int  # with `due`; absent: 0
    message: Content
    dup: str  # of a rider, which has no line on disk
    slot: int
    lease: LeaseFields
    key: str
    body: str
    unique: str
    uniques: list[str]  # of `msgs`, in their order; "": of one that has no key
    via: str
    txn: str
    row: tuple[str, int]
    riders: list[str]
    rides: str
    results: list[str]
    held: JsonObject | None
    after: JsonObject
    standings: list[list[str]]
    place: str
    out: list[OutEntry]
    news: JsonObject
    ttl: float
    name: str
    preparer: str
    head: str
    chain: list[str]
    file: str
    files: list[str]
    n: int
    sha256: str
    ids: list[str]
    manifest: bool
    of: int
    i: int
    said: str
    by: str
    step: float
    reason: str
    leases: list[str]
    seconds: float
    bulk: str
    at: int
    failed_again: int
    action: str
    to: Json
    filter: JsonObject


class WriteNote(Protocol):
    """Writes a line that changes no state of a message, as `Events.note` does."""

    def __call__(self, note: Note, **more: Unpack[NoteFields]) -> Record: ...


def rider_record(record: Record, rider: str) -> Record:
    """Return what a finish line says of one of its riders."""
    return {
        "ts": record["ts"],
        "seq": record.get("seq", 0),
        "msg": rider,
        "ev": record["ev"],
        "state": record["state"],
        "was": State.QUE,
        "cause": "duplicate",
        "text": f"duplicate {record['rides']}",
        "dup": record["rides"],
        "count": 0,
        "attempt": 0,
    }
