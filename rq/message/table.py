"""The table of the fields of a message: all that RQ knows of each, declared once.

A row says what a field may hold, who says it, what a copy gets, and where people see it.
Everything that treats fields alike reads the rows and knows no field by its name: what
parses and writes a message, what refuses a wrong name, copies and relays, edits, `rq send`
and `rq edit`, the forms of the web, the shapes of `/api/v1`, what pages and `rq show` list,
and the test that compares docs/reference/messages.md. Only what acts on a field names it:
the order names `priority`, retries name `max_count`.

So a field is added here, as a row, and as an attribute of `Message`, where a type says what
the code may do with it; docs/reference/messages.md gets its line. What acts on it is all
else that there is to write. A row is checked when this module is imported; that each
reader knows each row is proved by test/unit/test_message_table.py.

True of all rows, at all times:

- a name is never given another meaning: messages with it lie on disks, and other hosts send
  them;
- a field that RQ learns after its first version is `late`: before, a sender could call a
  field of its own so, and such a message must be read for ever. What it holds there and
  makes no sense is taken as if it were absent;
- what no row names survives as it is: `Message.extra`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum

from rq.message.after import MOST as MOST_AFTER
from rq.message.rank import LEAST, MOST

MAX_COUNT = 15
MOST_URLS = 20  # each takes the whole story of the end into a line of the journal
KEY_LIMIT = 200  # characters of a unique key
LATEST = 32503680000  # the year 3000, in epoch seconds
LONGEST = 366 * 86400.0  # seconds
LARGEST = 2**31 - 1  # of a whole number
REBUILT = (
    "rebuilt"  # of a message whose folder RQ has made again; nothing of its sender's
)
_MIB = 1024 * 1024


class Kind(StrEnum):
    """What a value may be; the word of docs/reference/messages.md."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"  # epoch seconds
    SECONDS = "seconds"
    BYTES = "bytes"
    FLAG = "flag"
    JSON = "any JSON"
    LIST = "list"
    OBJECT = "object"
    REASON = "true or text"


class By(Enum):
    """Who says a field."""

    SENDER = "a client, of a new message"
    COPY = "RQ, of a copy that it sends; it is taken from clients, too"
    RQ = "RQ alone: from a client it is not taken"
    BESIDE = "RQ and its clients, beside a message in a request or a file"
    VIEW = "RQ, of a message that it shows; a sender's is kept, and not shown"
    RUBY = "the Ruby RQ, in its files and forms: it is dropped"


class Kept(Enum):
    """Where a message has a field."""

    ALWAYS = "an attribute that is always written"
    SET = "an attribute that is written when it is set"
    PARAM = "`Message.params`"
    LIMIT = "`Message.limits`"
    NOT = "nowhere"


class Copied(StrEnum):
    """What a copy gets; the word of docs/reference/messages.md."""

    KEPT = "kept"
    NEW = "new"
    LATER = "now + SECONDS"
    ZERO = "0"
    NONE = "–"  # noqa: RUF001  # as the documents write it


class Place(Enum):
    """Where a page and `rq show` show a field."""

    FACT = "a line among the facts, as it is"
    PARAM = "among the parameters"
    LIMIT = "among the limits, in words"
    APART = "in a sentence or at a place of its own"
    APART_ON_PAGE = "on a page at a place of its own; a line of `rq show`"


@dataclass(frozen=True, slots=True)
class Form:
    """A field of the form of a new message."""

    help: str
    label: str = ""  # "": the name of the field


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A field of a message."""

    name: str
    kind: Kind = Kind.TEXT
    by: By = By.SENDER
    kept: Kept = Kept.SET
    default: int | None = None  # of a whole number that is absent
    absent: str = "none"  # what stands for it then, in words
    low: float = 0
    high: float = LARGEST
    most: int | None = None  # characters of a text, entries of a list
    clone: Copied = Copied.KEPT
    dup: Copied = Copied.KEPT
    travels: bool = True  # to the other host, when it is relayed
    late: bool = False  # RQ learnt it later: a file may hold anything there
    fixed: bool = False  # an edit of it would be another message
    steers: bool = False  # it says when the message runs
    place: Place = Place.FACT
    about: str = ""  # for the API, `rq send --help` and refusals
    label: str = ""  # for people, if it is not its name
    in_api: bool = True  # /api/v1 checks it
    option: str = ""  # of `rq send`: what stands for its value in the help
    form: Form | None = None
    called: tuple[str, ...] = ()  # in other queues

    def __post_init__(self) -> None:
        if self.kind is Kind.WHOLE and self.kept in (Kept.ALWAYS, Kept.SET):
            assert self.default is not None, f"{self.name}: a number lacks its default"
        assert self.low <= self.high, f"{self.name}: nothing can be between its bounds"
        assert self.about or not (self.option or self.called), f"{self.name}: say about"
        assert self.is_sent or not (self.option or self.form), (
            f"{self.name}: no client says it"
        )

    @property
    def is_sent(self) -> bool:
        """Whether a client says it of a new message."""
        return self.by is By.SENDER

    @property
    def is_moment(self) -> bool:
        """Whether people say it as a time."""
        return self.kind is Kind.NUMBER

    @property
    def said(self) -> str:
        """What a client is told of it: how its value is said, and what it means."""
        if self.kind is Kind.WHOLE and self.kept is Kept.SET and self.high < LARGEST:
            return f"{self.low:g} to {self.high:g}: {self.about}"
        return f"{_SAID_AS.get(self.kind, '')}{self.about}"


_SAID_AS = {
    Kind.NUMBER: "epoch seconds; ",
    Kind.SECONDS: "seconds, or a text like 10m; ",
    Kind.BYTES: "bytes, or a text like 512 MiB; ",
}


def _param(number: int) -> Row:
    return Row(
        name=f"param{number}",
        kind=Kind.JSON,
        kept=Kept.PARAM,
        place=Place.PARAM,
        form=Form(f"The script finds it in RQ_PARAM{number}."),
    )


def _limit(
    name: str,
    kind: Kind,
    bounds: tuple[float, float],
    about: str,
    label: str = "",
    called: tuple[str, ...] = (),
) -> Row:
    low, high = bounds
    return Row(
        name=name,
        kind=kind,
        kept=Kept.LIMIT,
        low=low,
        high=high,
        late=True,
        place=Place.LIMIT,
        about=about,
        label=label,
        called=called,
    )


def _after(name: str, about: str) -> Row:
    """Return a row of what is said beside `after`."""
    return Row(
        name=name,
        clone=Copied.NONE,
        dup=Copied.NONE,
        travels=False,
        late=True,
        fixed=True,
        steers=True,
        place=Place.APART,
        about=about,
        option="WORD",
    )


def _of_after(name: str) -> Row:
    """Return a row of what RQ itself keeps of `after`."""
    return Row(
        name=name,
        kind=Kind.OBJECT,
        by=By.RQ,
        clone=Copied.NONE,
        dup=Copied.NONE,
        travels=False,
        late=True,
        place=Place.APART,
    )


def _beside(name: str, by: By, place: Place = Place.FACT) -> Row:
    return Row(name=name, by=by, kept=Kept.NOT, place=place)


# In this order they are written, listed and asked for.
ROWS = (
    Row(
        name="msg_id",
        by=By.RQ,
        kept=Kept.ALWAYS,
        absent="given",
        clone=Copied.NEW,
        dup=Copied.NEW,
        travels=False,
        place=Place.APART,
    ),
    Row(
        name="dest",
        kept=Kept.ALWAYS,
        absent="**must be**",
        dup=Copied.NEW,
        fixed=True,
        about="its queue; the one of the path, if absent",
        form=Form("The queue, or the URL of a queue elsewhere."),
    ),
    Row(
        name="src",
        about="where it comes from: free text, for routing rules",
        option="TEXT",
        form=Form("Who sends it; free text, used by routing rules."),
    ),
    *(_param(number) for number in range(1, 5)),
    Row(
        name="due",
        kind=Kind.NUMBER,
        kept=Kept.ALWAYS,
        absent="now",
        high=LATEST,
        dup=Copied.LATER,
        travels=False,
        steers=True,
        place=Place.APART,
        about="not run before",
        form=Form(
            label="not before",
            help="+10m, 1h30m, or 2026-01-02 03:04 in UTC; blank: at once.",
        ),
        called=(
            *("at", "countdown", "defer_until", "delay", "delay_seconds", "eta"),
            *("not_before", "run_at", "run_in", "schedule_at", "schedule_in"),
            *("scheduled_at", "start_at"),
        ),
    ),
    Row(
        name="count",
        kind=Kind.WHOLE,
        kept=Kept.ALWAYS,
        default=0,
        clone=Copied.ZERO,
        dup=Copied.ZERO,
        fixed=True,
        place=Place.APART,
        about="retries that have been counted",
    ),
    Row(
        name="max_count",
        kind=Kind.WHOLE,
        kept=Kept.ALWAYS,
        default=MAX_COUNT,
        place=Place.APART,
        about="the retry that is one too many",
        option="N",
        called=(
            *("attempts", "max_attempts", "max_retries", "max_retry", "max_tries"),
            *("retries", "retry_limit", "tries"),
        ),
    ),
    Row(
        name="attempt",
        kind=Kind.WHOLE,
        by=By.RQ,
        default=0,
        clone=Copied.ZERO,
        dup=Copied.ZERO,
        travels=False,
        place=Place.APART,
    ),
    Row(
        name="lost_attempts",
        kind=Kind.WHOLE,
        by=By.RQ,
        default=0,
        clone=Copied.ZERO,
        dup=Copied.ZERO,
        travels=False,
        late=True,
    ),
    Row(
        name="priority",
        kind=Kind.WHOLE,
        default=LEAST,
        low=LEAST,
        high=MOST,
        late=True,
        steers=True,
        about="of those that are due 9 starts first",
        option="N",
        form=Form("0 to 9: of those that are due, the highest runs first; blank: 0."),
        called=("prio",),
    ),
    Row(
        name="unique_key",
        most=KEY_LIMIT,
        about="a text that equal messages have in common",
        option="TEXT",
        form=Form("Messages with the same one are equal, whatever their params say."),
        called=("unique", "unique_for"),
    ),
    Row(
        name="after",
        kind=Kind.LIST,
        most=MOST_AFTER,
        clone=Copied.NONE,
        dup=Copied.NONE,
        travels=False,
        late=True,
        fixed=True,
        steers=True,
        place=Place.APART,
        about="messages that have to end first: ID, QUEUE/ID or a full id of this root",
        option="IDS",
        form=Form(
            "Messages that have to end first: ID, QUEUE/ID, with blanks between."
        ),
        called=("depends_on", "wait_for"),
    ),
    _after(
        "after_rule", "done, ended or failed: how they have to end; done, if absent"
    ),
    _after(
        "after_fail",
        "hold, err or cancel: what follows if they do not; hold, if absent",
    ),
    _of_after("after_end"),
    _of_after("after_file"),
    Row(
        name="post_run_webhook",
        kind=Kind.LIST,
        most=MOST_URLS,
        about="URLs that are told when it has ended",
        form=Form("URLs to call when it has ended, with blanks between them."),
        called=("webhook", "webhooks", "webhook_url"),
    ),
    Row(
        name="by",
        by=By.RQ,
        clone=Copied.NEW,
        travels=False,
        late=True,
        about="who sent it, as the door knows it",
        label="sent by",
    ),
    Row(name="orig_msg_id", absent="own full id", fixed=True, in_api=False),
    Row(
        name="force_remote",
        kind=Kind.FLAG,
        absent="false",
        dup=Copied.NONE,
        travels=False,
        fixed=True,
        in_api=False,
    ),
    Row(
        name="cloned_from",
        by=By.COPY,
        clone=Copied.NEW,
        dup=Copied.NONE,
        travels=False,
        fixed=True,
    ),
    Row(name="parent_result", by=By.COPY, dup=Copied.NEW),
    Row(name="dup", by=By.RQ, clone=Copied.NONE, dup=Copied.NONE, travels=False),
    Row(
        name="dups",
        kind=Kind.LIST,
        by=By.RQ,
        clone=Copied.NONE,
        dup=Copied.NONE,
        travels=False,
    ),
    Row(
        name="held",
        kind=Kind.OBJECT,
        by=By.RQ,
        clone=Copied.NONE,
        dup=Copied.NONE,
        place=Place.APART,
    ),
    Row(
        name="attachments",
        kind=Kind.OBJECT,
        by=By.RQ,
        travels=False,
        place=Place.APART,
    ),
    Row(
        name="hold",
        kind=Kind.REASON,
        kept=Kept.NOT,
        absent="false",
        clone=Copied.NONE,
        dup=Copied.NONE,
        fixed=True,
        steers=True,
        about="true, or a text that says why: it waits until release",
    ),
    _limit(
        "timeout",
        Kind.SECONDS,
        (0, LONGEST),
        "its script is ended then",
        called=("job_timeout", "reserve_for", "time_limit", "ttr"),
    ),
    _limit("grace", Kind.SECONDS, (0, LONGEST), "from TERM to KILL"),
    _limit(
        "heartbeat",
        Kind.SECONDS,
        (0, LONGEST),
        "a script that is silent for longer is ended",
    ),
    _limit(
        "deadline",
        Kind.NUMBER,
        (0, LATEST),
        "not started later",
        called=("expire", "expires", "expires_at", "expires_in", "max_age", "ttl"),
    ),
    _limit("memory", Kind.BYTES, (_MIB, 2**60), "of its script"),
    _limit(
        "cpu_seconds",
        Kind.WHOLE,
        (1, int(LONGEST)),
        "of each process",
        label="processor time",
    ),
    _limit(
        "open_files", Kind.WHOLE, (16, 2**20), "of each process", label="open files"
    ),
    _limit("processes", Kind.WHOLE, (1, 2**22), "of its script"),
    _limit(
        "log_bytes",
        Kind.BYTES,
        (4096, 2**60),
        "that are kept of its output",
        label="log",
    ),
    Row(
        name="_key",
        by=By.BESIDE,
        kept=Kept.NOT,
        travels=False,
        about="names the request, and is remembered for seven days",
        called=("dedup_id", "dedup_key", "deduplication_id", "idempotency_key"),
    ),
    # Said by RQ's own user and root alone. Beside a key: whose it is.
    _beside("_key_of", By.BESIDE),
    # The user who prepares a message, or changes what is prepared; and whether as operator,
    # who may change what other users prepare.
    _beside("_preparer", By.BESIDE),
    # Who sends a message, in the words of a door that has let them in.
    _beside("_by", By.BESIDE),
    _beside("_as_operator", By.BESIDE),
    # A sentence, of a message with more URLs from before there was a limit.
    _beside("post_run_webhook_cut", By.BESIDE),
    _beside("phase", By.VIEW, Place.APART),
    _beside("acknowledged", By.VIEW, Place.APART_ON_PAGE),
    _beside("removed_at", By.VIEW, Place.APART),
    _beside("_txn", By.VIEW, Place.APART_ON_PAGE),
    _beside("_why", By.VIEW, Place.APART),
    _beside("_limits", By.VIEW, Place.APART),
    _beside("_restored", By.VIEW, Place.APART_ON_PAGE),
    _beside("_silent", By.VIEW, Place.APART_ON_PAGE),
    _beside("status", By.RUBY, Place.APART),
    _beside("state", By.RUBY, Place.APART),
    _beside("path", By.RUBY, Place.APART),
    _beside("story", By.RUBY, Place.APART),
    _beside("_attachments", By.RUBY, Place.APART),
    _beside("_method", By.RUBY),
    _beside("child_pid", By.RUBY),
)
BY_NAME = {row.name: row for row in ROWS}
assert len(BY_NAME) == len(ROWS), "two fields have the same name"


def names(is_one: Callable[[Row], bool]) -> tuple[str, ...]:
    """Return the names of the fields of which something is true."""
    return tuple(row.name for row in ROWS if is_one(row))


# ---- what may be said

SAID_BY_SENDERS = frozenset(names(lambda row: row.is_sent))
# What only RQ itself writes into a message; from a client it is not taken.
OWN = frozenset(names(lambda row: row.by in (By.RQ, By.BESIDE)))
DROPPED = frozenset(names(lambda row: row.by is By.RUBY))
FIELDS = frozenset(names(lambda row: row.by is not By.VIEW))
# What says when a message runs.
STEERING = frozenset(names(lambda row: row.steers))
# What an edit leaves as it is: with another one it would be another message.
FIXED = OWN | frozenset(names(lambda row: row.fixed))

# ---- what is kept, and what is passed on

PARAMS = names(lambda row: row.kept is Kept.PARAM)
# What limits the attempts of a message.
LIMITS = frozenset(names(lambda row: row.kept is Kept.LIMIT))
KEPT = frozenset(names(lambda row: row.kept is not Kept.NOT))
WRITTEN_IF_SET = names(lambda row: row.kept is Kept.SET)
# What a file may hold of a sender's own, from before RQ knew the name.
LATE = frozenset(names(lambda row: row.late))
# What a copy in this queue, in another one, and on another host does not get as it is. A
# field that is not kept is a sender's own in a message that was accepted before: it stays.
NOT_CLONED = OWN | frozenset(
    names(lambda row: row.name in KEPT and row.clone is not Copied.KEPT)
)
NOT_DUPED = NOT_CLONED | frozenset(
    names(lambda row: row.name in KEPT and row.dup is not Copied.KEPT)
)
NOT_RELAYED = frozenset(names(lambda row: not row.travels))

# ---- what is shown

# By these RQ says how a message stands, when it shows one. Nor is the key of a message in
# prep shown: another could send his under it first, and the one who commits his own would
# hear that it was accepted already.
NOT_SHOWN = frozenset(names(lambda row: row.by is By.VIEW)) | {"_key", "_preparer"}
# What `rq show` tells elsewhere than in a line of its own; and what a page does.
APART = frozenset(
    names(lambda row: row.place not in (Place.FACT, Place.APART_ON_PAGE))
) | {"result", "next_attempt"}
APART_ON_PAGE = APART | frozenset(names(lambda row: row.place is Place.APART_ON_PAGE))
