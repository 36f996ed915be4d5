"""What an operation is: a row that names all that a stranger has to know of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rq.access.roles import Role
from rq.kinds import Kind
from rq.web.api.readers import reader
from rq.web.api.shapes import is_shape
from rq.web.livelog import Event
from rq.web.routes import API, Own

PREFIX = API
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FIELD = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"[a-z][A-Za-z]+")

# `async def handler(site, req, body, **fields_of_the_path)`; it returns a reply, or Answer.
Handler = Callable[..., Awaitable[object]]


class Media(StrEnum):
    """What a body is made of."""

    JSON = "application/json"
    LINES = "application/x-ndjson"  # a JSON value a line
    JSONL = "application/jsonl"  # the same
    BYTES = "application/octet-stream"
    TAR = "application/x-tar"
    EVENTS = "text/event-stream"
    PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header that an operation reads, or that its answer has."""

    name: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """A file that is sent, and closed then."""

    fd: int
    media: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply with more than itself; `status` 0 is that of the row."""

    value: object = None  # written as JSON, unless there is `data`, or `pieces` of it
    data: bytes | None = None
    pieces: AsyncIterator[bytes] | None = None
    file: OpenFile | None = None  # or a part of it, as the request wants it
    events: AsyncIterator[Event] | None = None  # sent as they come
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    media: Media | None = None  # None: that of the row


# ---- of whom most operations ask, and what that may fail of

OF_ALL = (
    Kind.LOGIN_NEEDED,
    Kind.NOT_ALLOWED,
    Kind.OTHER_QUEUE,
    Kind.WRONG_HOST,
    Kind.TOO_OFTEN,
    Kind.INTERNAL,
)
OF_OWNERS = (
    Kind.BAD_INPUT,
    Kind.NO_SUCH_QUEUE,
    Kind.BUSY,
    Kind.DOWN,
    Kind.CLOSED,
    Kind.DISK_FAILED,
    Kind.CANNOT_READ,
    Kind.UNREACHABLE,
    Kind.OUTCOME_UNKNOWN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    `request` is the shape of the body; of a GET or DELETE, and of a body that is no JSON
    (`takes`), that of the query. `failures` are those beyond OF_ALL. ValueError for a row
    that leaves something out: it cannot be installed.
    """

    operation_id: str
    method: str
    path: str  # below PREFIX
    role: Role
    summary: str
    request: type | None
    reply: object  # a shape, or a type of JSON
    failures: tuple[Kind, ...]
    handler: Handler
    takes: tuple[Media, ...] = (Media.JSON,)
    gives: Media = Media.JSON
    also_gives: Media | None = None  # to a request that is of this type, too
    status: int = 200
    other_status: int = 0  # of an answer of the same shape; 0: there is none
    headers: tuple[Header, ...] = ()
    reply_headers: tuple[Header, ...] = ()
    ranges: bool = False  # of what it gives a part may be asked for
    shared: bool = False  # also for those who may ask of some queues only
    own: Own = Own.NOTHING  # what a sender may do by it without `role`
    deprecated: bool = False  # another word says the same
    longest: int = 0  # bytes of a body of JSON; 0: as many as an owner takes at once

    def __post_init__(self) -> None:
        wrong = [word for word, is_right in self._rules() if not is_right]
        if wrong:
            where = f"{self.method} {self.path}"
            raise ValueError(f"{where}: the row lacks a right {', '.join(wrong)}")

    def _rules(self) -> list[tuple[str, bool]]:
        return [
            ("operation_id", bool(_NAME.fullmatch(self.operation_id))),
            ("method", self.method in METHODS),
            ("path", self.path.startswith("/")),
            ("summary", self.summary.endswith(".")),
            ("request", self.request is None or is_shape(self.request)),
            ("reply", callable(reader(self.reply))),
            ("failures", bool(self.failures) or self.shared),
        ]

    @property
    def statuses(self) -> tuple[int, ...]:
        """Return the statuses of what succeeds."""
        return (self.status, self.other_status) if self.other_status else (self.status,)

    @property
    def path_fields(self) -> list[str]:
        """Return the names of what the path leaves open."""
        return _FIELD.findall(self.path)

    @property
    def has_body(self) -> bool:
        """Whether the request carries a body."""
        if self.method in ("GET", "DELETE"):
            return False
        return self.request is not None or self.takes != (Media.JSON,)

    @property
    def asks_by_query(self) -> bool:
        """Whether the request's shape is that of the query."""
        return self.request is not None and (
            self.method in ("GET", "DELETE") or Media.JSON not in self.takes
        )
