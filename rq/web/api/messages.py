"""The operations of messages: send, look, list; how each attempt on one ended, and its log."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypedDict, cast

from falcon.asgi import Request

from rq import names
from rq.access.roles import Role
from rq.builtin.router import rules
from rq.errors import BadInput, NoSuchMessage, RQError
from rq.kinds import PASSING, Kind
from rq.layout import JOB, STDIO_LOG
from rq.replies import AttemptsView, MessageRow, MessageView
from rq.rpc import client
from rq.rpc.lines.owners import ClientGone
from rq.spool import attempts_kept
from rq.spool.attempts_kept import Part
from rq.web import downloads, own, reading
from rq.web.answers import sees_secrets
from rq.web.api.message_shape import Message, NewMessage
from rq.web.api.operation import OF_OWNERS, PREFIX, Answer, Header, Media, Operation
from rq.web.api.shapes import Limits
from rq.web.connection import LOST
from rq.web.messages import check_dest, check_target, checked, with_user
from rq.web.rights import only_by
from rq.web.routes import Own
from rq.web.site import Site
from rq.words.nesting import Json
from rq.words.states import State, version_of

PLACE = "/queues/{name}/messages"
MOST_LISTED = 1000
JOINED = "joined"  # of an owner's answer: nothing new was made
States = Literal["prep", "que", "run", "done", "relayed", "err", "dismissed"]


class Sent(TypedDict):
    """A message that was accepted."""

    msg_id: Annotated[str, "its short id"]
    queue: str
    url: str
    joined: NotRequired[
        Annotated[bool, "nothing new was made: this equal message stands"]
    ]


_Text = Annotated[str | None, Limits(longest=4096)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Messages of one state; each further field makes them fewer."""

    state: States
    before: Annotated[
        float | None, "epoch seconds: they came into their state earlier"
    ] = None
    older: Annotated[
        str | None, Limits(longest=40), "in place of before, an age: 90, 10m, 2d"
    ] = None
    after: Annotated[float | None, "epoch seconds: or not earlier"] = None
    cause: _Text = None
    group: Annotated[_Text, "failures that are alike, as a count names them"] = None
    text: Annotated[_Text, "a part of what was said last"] = None
    find: Annotated[
        _Text, "words, each a part of id, params, text, cause, key or src"
    ] = None
    key: Annotated[_Text, "the unique_key"] = None
    by: Annotated[_Text, "who has sent it"] = None
    param1: _Text = None
    param2: _Text = None
    param3: _Text = None
    param4: _Text = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(MessageFilter):
    """Which messages are listed: of a state, all or those that match."""

    state: States = "que"
    limit: Annotated[int, Limits(least=1, most=MOST_LISTED)] = 100
    order: Annotated[
        Literal["newest", "next"],
        "`next`: of que those that run next, in that order, on one page",
    ] = "newest"
    cursor: Annotated[str, "`next` of the page before; the first page, if absent"] = ""


class Messages(TypedDict):
    """Messages of a state, the newest first."""

    messages: list[MessageRow]
    next: Annotated[str | None, "cursor of the next page; null: there is none"]


async def send(site: Site, req: Request, body: NewMessage, name: str) -> Answer:
    message = {**body, "dest": body.get("dest") or name}
    check_dest(req, name, message)
    await own.check_after(site, req.context.principal, name, message)
    if (key := key_of(req, body.get("_key"))) is not None:
        message |= {"_key": key, "_same": True}
    request = with_user(req, cast("dict[str, Json]", message))
    queue = rules.addressed(site.root, name)
    reply = await site.owners.ask(queue, "create_message", request)
    url = client.demanded(reply)
    return sent(site, str(url), joined=JOINED in reply[2:])


def key_of(req: Request, key: str | None) -> str | None:
    """Return the key of a request: of its header, or the field `_key`; BadInput when they
    differ."""
    given = req.get_header(KEY.name)
    if given is not None and key not in (None, given):
        raise BadInput(f"{KEY.name} and _key are not the same: say one of them")
    return key if given is None else given


def sent(site: Site, url: str, *, joined: bool = False) -> Answer:
    """Return the answer that names an accepted message, or the one that stands for it."""
    queue, short = names.split_url(url)
    value: Sent = {"msg_id": short or "", "queue": queue, "url": url}
    if joined:
        value["joined"] = True
    path = PREFIX + PLACE.format(name=queue)
    headers = {"Location": site.url(f"{path}/{short}")}
    return Answer(value=value, headers=headers, status=200 if joined else 0)


async def list_messages(site: Site, req: Request, body: Listing, name: str) -> Messages:
    after = names.msg_id(body.cursor) if body.cursor else ""
    state, wanted = State(body.state), _filter_of(body)
    if user := only_by(req):
        wanted["by"] = user
    if wanted and body.order == reading.NEXT:
        raise BadInput("messages that match are listed the newest first: leave order")
    if body.order == reading.NEXT and state is State.QUE:
        first = await reading.rows(site, name, state, body.limit, order=body.order)
        return {"messages": first, "next": None}
    if wanted:
        request = {"state": str(state), "filter": wanted, **_as_asker(req)}
        with site.pools.looking():
            rows = await reading.matching(site, name, request, body.limit + 1, after)
    else:
        rows = await reading.rows(site, name, state, body.limit + 1, after)
    listed = rows[: body.limit]
    return {
        "messages": [own.row(row) for row in listed] if user else listed,
        "next": listed[-1]["msg_id"] if len(rows) > body.limit else None,
    }


def _filter_of(body: Listing) -> dict[str, Json]:
    """Return what makes a list shorter than its state."""
    fields = {name.name for name in dataclasses.fields(MessageFilter)} - {"state"}
    given = {name: getattr(body, name) for name in sorted(fields)}
    return {name: value for name, value in given.items() if value is not None}


def _as_asker(req: Request) -> dict[str, bool]:
    """Tell an owner, which knows the web alone, that one below admin asks: what he is not
    shown he does not find letter by letter."""
    return {} if sees_secrets(req) else {"below_admin": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How long the answer may wait, and for what."""

    wait: Annotated[float, Limits(least=0, most=60), "seconds at most"] = 0
    for_: Literal["end"] = "end"


async def get(
    site: Site, req: Request, body: Waiting, name: str, msg_id: str
) -> Answer:
    if body.wait:
        gone: asyncio.Event = req.scope.get(LOST) or asyncio.Event()
        await _until_end(site, name, checked(msg_id), body.wait, gone)
    view = await reading.message(site, name, checked(msg_id))
    visible = own.message(view) if only_by(req) else view
    return Answer(value=visible, headers={"ETag": tag_of(view)})


async def _until_end(
    site: Site, name: str, msg_id: str, seconds: float, gone: asyncio.Event
) -> None:
    """Wait until a message has ended, at most so long, or until its queue stops or the
    client has gone."""
    request = {"msg_id": msg_id, "wait": seconds}
    try:
        await site.owners.wait(name, "await_end", request, seconds, gone)
    except ClientGone:
        return
    except RQError as error:
        if error.kind is Kind.BUSY or error.kind not in PASSING:
            raise


def tag_of(view: MessageView) -> str:
    """Return the ETag of a message: as what it was seen."""
    return f'"{version_of(view)}"'


async def check_copy(site: Site, req: Request, name: str, msg_id: str) -> None:
    """Refuse to copy a message that the client may not see, or not send."""
    check_target(req, name)
    try:
        message: Mapping[str, object] = await reading.message(site, name, msg_id)
    except NoSuchMessage:
        return  # the queue says so
    check_dest(req, name, message)


# ---- the attempts on a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which part of a log is wanted."""

    attempt: Annotated[
        int | None, Limits(least=1, most=2**31 - 1), "the whole file, if absent"
    ] = None


async def list_attempts(
    site: Site, req: Request, body: None, name: str, msg_id: str
) -> AttemptsView:
    view = await reading.attempts(site, name, checked(msg_id))
    return own.attempts(view) if only_by(req) else view


async def get_log(
    site: Site, req: Request, body: Which, name: str, msg_id: str
) -> Answer:
    if only_by(req):
        kept = await reading.attempts(site, name, checked(msg_id))
        own.check_log(kept["attempts"], body.attempt)
    part = await part_of(site, name, msg_id, body.attempt)
    inner = f"{JOB}/{part.file}"
    fd = await downloads.open_file(site, name, checked(msg_id), inner)
    end = os.fstat(fd).st_size if part.end is None else part.end
    if req.method == "HEAD":  # it has no body
        os.close(fd)
        return Answer(data=b"")
    return Answer(pieces=downloads.pieces(site, fd, part.begin, end))


async def part_of(site: Site, name: str, msg_id: str, attempt: int | None) -> Part:
    """Return where the output of an attempt is, of all when none is named; NoSuchMessage
    when there is none of it."""
    if attempt is None:
        return Part(STDIO_LOG, 0, None)
    rows = (await reading.attempts(site, name, checked(msg_id)))["attempts"]
    part = attempts_kept.part_of(rows, attempt)
    if part is None:
        raise NoSuchMessage(attempts_kept.why_none(rows, attempt))
    return part


KEY = Header(
    name="Idempotency-Key",
    about="1 to 200 characters, remembered for seven days: what comes with it again is "
    "answered as the first, and refused if it is another message",
)
TAG = Header(name="ETag", about="of the message as it is now; for If-Match")
LOCATION = Header(name="Location", about="the address of the message")
_OF_ONE = (*OF_OWNERS, Kind.NO_SUCH_MESSAGE, Kind.UNREADABLE)
ROWS = (
    Operation(
        operation_id="sendMessage",
        method="POST",
        path=PLACE,
        role=Role.PRODUCER,
        summary="Send a message; it is on disk when it is answered.",
        request=NewMessage,
        reply=Sent,
        failures=(*OF_OWNERS, Kind.TOO_LARGE, Kind.NO_ROOM, Kind.NOT_UNIQUE),
        own=Own.SENDS,
        handler=send,
        status=201,
        other_status=200,
        headers=(KEY,),
        reply_headers=(LOCATION,),
    ),
    Operation(
        operation_id="listMessages",
        method="GET",
        path=PLACE,
        role=Role.VIEWER,
        summary="List the messages of a state, the newest first, or what runs next.",
        request=Listing,
        reply=Messages,
        failures=OF_OWNERS,
        own=Own.LIST,
        handler=list_messages,
    ),
    Operation(
        operation_id="getMessage",
        method="GET",
        path=f"{PLACE}/{{msg_id}}",
        role=Role.VIEWER,
        summary="Show all that is known of a message; with `wait`, once it has ended.",
        request=Waiting,
        reply=Message,
        failures=_OF_ONE,
        own=Own.MESSAGE,
        handler=get,
        reply_headers=(TAG,),
    ),
    Operation(
        operation_id="listAttempts",
        method="GET",
        path=f"{PLACE}/{{msg_id}}/attempts",
        role=Role.VIEWER,
        summary="Tell how each attempt on a message ended, and which runs.",
        request=None,
        reply=AttemptsView,
        failures=_OF_ONE,
        own=Own.MESSAGE,
        handler=list_attempts,
    ),
    Operation(
        operation_id="getLog",
        method="GET",
        path=f"{PLACE}/{{msg_id}}/log",
        role=Role.VIEWER,
        summary="Give what scripts have printed for a message, or one attempt's part.",
        request=Which,
        reply=object,
        failures=_OF_ONE,
        own=Own.MESSAGE,
        handler=get_log,
        gives=Media.BYTES,
    ),
)
