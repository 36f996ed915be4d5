"""Many messages by one request, a line each: every line is accepted or refused for itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Annotated, NotRequired, TypedDict, cast

import falcon
import orjson
from falcon.asgi import Request

from rq.access.roles import Role
from rq.builtin.router import rules
from rq.errors import NotUnique, RQError, TooLarge
from rq.kinds import Kind
from rq.message.message import MESSAGE_LIMIT
from rq.rpc import client, wire
from rq.rpc.lines.line import Line
from rq.rpc.lines.owners import LONG
from rq.web import own
from rq.web.api import readers, requests
from rq.web.api.message_shape import NewMessage
from rq.web.api.messages import JOINED, KEY, PLACE, key_of
from rq.web.api.operation import OF_OWNERS, Answer, Media, Operation
from rq.web.api.shapes import Limits
from rq.web.guard import HEARD_OUT
from rq.web.messages import check_dest, with_user
from rq.web.routes import Own
from rq.web.site import Site
from rq.words.nesting import Json, from_json

MOST = 100_000  # lines of a request
BODY = 64 * 1024 * 1024  # bytes
_IN_ONE = 1000  # lines that one request to the owner carries
_BYTES = 768 * 1024  # of them
_AHEAD = 2  # requests that the owner has, while the next is made
MOST_AS_JSON = 10_000
_LINES = (Media.LINES, Media.JSONL)


class LineSent(TypedDict):
    """What became of a line: its message, or the kind of failure and a sentence."""

    line: Annotated[int, "from 1"]
    msg_id: NotRequired[
        Annotated[str, "of its message, or of the equal one that stands"]
    ]
    joined: NotRequired[Annotated[bool, "nothing new was made"]]
    kind: NotRequired[Kind]
    text: NotRequired[str]


class NewMessages(TypedDict):
    """Messages to be sent."""

    messages: Annotated[list[NewMessage], Limits(shortest=1, longest=MOST_AS_JSON)]


class LinesSent(TypedDict):
    """What became of each message, in their order; `line` is its place, from 1."""

    results: list[LineSent]


async def send(
    site: Site, req: Request, body: NewMessages | None, name: str
) -> LinesSent | Answer:
    """Send messages: as JSON, or one a line."""
    return await (
        _send_lines(site, req, name)
        if body is None
        else _send_all(site, req, body, name)
    )


async def _send_all(
    site: Site, req: Request, body: NewMessages, name: str
) -> LinesSent:
    check_dest(req, name, {})
    queue = rules.addressed(site.root, name)
    async with site.owners.line(queue) as line:
        sending = _Sending(line)
        for number, message in enumerate(body["messages"], 1):
            fields = cast(dict[str, Json], message)
            try:
                checked = _checked(req, name, number, fields)
                await own.check_after(site, req.context.principal, name, checked)
            except RQError as error:
                sending.refuse([number], error)
            else:
                await sending.add(number, checked, len(orjson.dumps(fields)))
        await sending.end()
    return {"results": sending.rows()}


async def _send_lines(site: Site, req: Request, name: str) -> Answer:
    requests.check_media(req, _LINES)
    if (req.content_length or 0) > BODY:
        raise falcon.HTTPContentTooLarge(
            description=f"The lines of a request are at most {BODY} bytes; send several."
        )
    check_dest(req, name, {})
    queue = rules.addressed(site.root, name)
    lines = _Lines(req.stream)
    async with site.owners.line(queue) as line:
        sending = _Sending(line)
        async for number, text in lines.each():
            try:
                fields = _fields(req, name, number, text)
                await own.check_after(site, req.context.principal, name, fields)
            except RQError as error:
                sending.refuse([number], error)
            else:
                await sending.add(number, fields, len(text))
        if lines.surplus is not None:
            sending.refuse([lines.number + 1], lines.surplus)
        await sending.end()
    return Answer(data=sending.answer(), media=Media.LINES)


def _fields(req: Request, name: str, number: int, text: bytes) -> Mapping[str, Json]:
    """Return the message of a line, with its key; an RQError says what is wrong."""
    if len(text) > MESSAGE_LIMIT:
        raise TooLarge(
            f"a line is at most {MESSAGE_LIMIT} bytes; send large data as an attachment"
        )
    message = readers.read(NewMessage, from_json(text, "the line"))
    return _checked(req, name, number, cast(dict[str, Json], message))


def _checked(
    req: Request, name: str, number: int, fields: dict[str, Json]
) -> Mapping[str, Json]:
    """Return a message with its key; an RQError when its sender may not send it."""
    if fields.setdefault("dest", name) != name:
        check_dest(req, name, fields)
    key = fields.get("_key") or _key_of_line(req, number)
    return with_user(
        req, fields if key is None else {**fields, "_key": key, "_same": True}
    )


def _key_of_line(req: Request, number: int) -> str | None:
    key = key_of(req, None)
    return None if key is None else f"{key}/{number}"


class _Lines:
    """The lines of a body, as many as a request may have."""

    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream
        self.number = 0  # of the line that was given last, the empty ones counted
        self.surplus: TooLarge | None = None  # why the lines behind it were not given

    async def each(self) -> AsyncIterator[tuple[int, bytes]]:
        """Give the lines that are not empty, with their numbers. A line that is longer
        than a message is given as far as that shows. What is too much is read and left:
        most clients send all before they read the answer."""
        size, rest = 0, b""
        async for piece in self._stream:
            size += len(piece)
            if size > BODY + HEARD_OUT:
                return
            if size > BODY:  # of a body that does not say its length
                self._end(f"{BODY} bytes")
                continue
            *whole, rest = (rest + piece).split(b"\n")
            for text in whole:
                if self._is_one(text):
                    yield self.number, text
            rest = rest[: MESSAGE_LIMIT + 1]
            await asyncio.sleep(0)  # others are served by this process, too
        if size <= BODY and self._is_one(rest):
            yield self.number, rest

    def _is_one(self, text: bytes) -> bool:
        """Count a line; return whether it is to be given."""
        if self.surplus is not None:
            return False
        if self.number == MOST and text.strip():
            self._end(f"{MOST} lines")
            return False
        self.number += self.number < MOST
        return bool(text.strip())

    def _end(self, most: str) -> None:
        if self.surplus is None:
            text = f"a request has at most {most}: send the rest in another"
            self.surplus = TooLarge(text)


class _Sending:
    """Hands lines to the owner, many by a request, and keeps what became of them."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._numbers: list[int] = []
        self._messages: list[Mapping[str, Json]] = []
        self._size = 0  # bytes
        self._pending: deque[tuple[list[int], asyncio.Future[bytes]]] = deque()
        self._has_answer = False
        self._rows: list[LineSent] = []

    async def add(self, number: int, message: Mapping[str, Json], size: int) -> None:
        """Take a line in; wait when the owner has enough to do."""
        if len(self._numbers) >= _IN_ONE or self._size + size > _BYTES:
            await self._ask()
        self._numbers.append(number)
        self._messages.append(message)
        self._size += size

    def refuse(self, numbers: Sequence[int], error: RQError) -> None:
        """Tell of lines that failed of the same."""
        kind, text = error.kind, str(error)
        self._rows += [{"line": at, "kind": kind, "text": text} for at in numbers]

    async def end(self) -> None:
        """Wait for all answers; RQError when the owner has taken nothing at all."""
        await self._ask()
        while self._pending:
            await self._take_answer()

    def rows(self) -> list[LineSent]:
        """Return what became of all lines, in their order."""
        return sorted(self._rows, key=lambda row: row["line"])

    def answer(self) -> bytes:
        """Return what became of all lines, a line each, in their order."""
        return b"".join(orjson.dumps(row) + b"\n" for row in self.rows())

    async def _ask(self) -> None:
        if not self._numbers:
            return
        payload = b"create_messages " + orjson.dumps({"messages": self._messages})
        numbers, self._numbers, self._messages, self._size = self._numbers, [], [], 0
        try:
            self._pending.append((numbers, self._line.ask(payload, LONG)))
        except RQError as error:
            self.refuse(numbers, error)
        if len(self._pending) > _AHEAD:
            await self._take_answer()

    async def _take_answer(self) -> None:
        numbers, answer = self._pending.popleft()
        try:
            rows = client.demanded(orjson.loads(await answer))
        except RQError as error:
            if not self._has_answer:
                raise  # nothing was accepted: the request has failed as a whole
            self.refuse(numbers, error)
        else:
            self._rows += map(_row, numbers, rows)
        self._has_answer = True


def _row(number: int, reply: Sequence[Json]) -> LineSent:
    """Return what became of a line, by the owner's reply."""
    error = wire.failure_in(reply)
    if error is None:
        sent: LineSent = {"line": number, "msg_id": str(reply[1])}
        if JOINED in reply[2:]:
            sent["joined"] = True
        return sent
    row: LineSent = {"line": number, "kind": error.kind, "text": str(error)}
    if isinstance(error, NotUnique):
        row["msg_id"] = error.msg_id
    return row


ROWS = (
    Operation(
        operation_id="sendMessages",
        method="POST",
        path=f"{PLACE}/bulk",
        role=Role.PRODUCER,
        summary="Send many messages; each is accepted or refused for itself.",
        request=NewMessages,
        reply=LinesSent,
        failures=(*OF_OWNERS, Kind.TOO_LARGE, Kind.NO_ROOM),
        own=Own.SENDS,
        handler=send,
        takes=(Media.JSON, *_LINES),
        also_gives=Media.LINES,
        headers=(KEY,),
    ),
)
