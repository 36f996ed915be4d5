"""The commands of those who work on messages elsewhere: lease, start, renew, finish, …

Each word is about a token. What became of it is told for each token by itself, in a row
`{"token", "ok": true, …}` or `{"token", "ok": false, "kind", "text"}`, so that a bulk of
words never fails as a whole.
"""

from __future__ import annotations

import functools
import heapq
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rq import names
from rq.access.roles import Role
from rq.errors import BadInput, RQError, WrongOffset, not_done
from rq.message import Attachment, JsonObject
from rq.nesting import Json
from rq.queues.attempts.lease import Lease
from rq.queues.concurrency.tasks import in_slices
from rq.queues.control.command import (
    Command,
    Context,
    NowOrLater,
    Ok,
    asker,
    object_in,
)
from rq.queues.control.create import open_file
from rq.queues.leases import said
from rq.queues.leases.desk import new_waiter
from rq.queues.leases.grants import Granted, Wanted
from rq.queues.owner.owner import Owner
from rq.replies import Grant, GrantsView, LeaseRow, LeasesView, WordResult

MOST = 1000  # tokens, or leases, in one request
FEW = 50  # words that are taken at once; more take turns with other requests
LONGEST, LONGEST_WAIT = 86_400.0, 60.0  # seconds
LABEL, REQUEST, VERSION = 64, 128, 64  # characters
PAGE = 1000  # leases in one reply

NO_FILES: Mapping[str, Attachment] = {}

Results = dict[str, list[WordResult]]


# ---- leases


def lease(ctx: Context, arg: bytes) -> NowOrLater[GrantsView]:
    """Lease what is due; with `wait`, as soon as something is."""
    request = object_in(arg)
    wanted = _wanted(ctx, request)
    wait = said.seconds(request, "wait", 0.0, 0.0, LONGEST_WAIT)
    key = _visible(request, "request", REQUEST)
    _hear(ctx, wanted.by, request)
    granted = ctx.leases.take(wanted, key) if wanted.count else []
    news = ctx.leases.cancelled(wanted.by)
    if wait and not granted and not news:
        return _when_due(ctx, wanted, wait, key)
    ctx.connection.if_lost(functools.partial(ctx.leases.give_back, granted))
    return "ok", _grants(ctx, granted, news)


async def _when_due(
    ctx: Context, wanted: Wanted, seconds: float, key: str
) -> Ok[GrantsView]:
    desk, waiter = ctx.leases, new_waiter(wanted)
    ctx.connection.if_lost(waiter.lose)
    ctx.connection.listen()
    news = desk.cancelled(wanted.by)  # since this was asked, a turn ago
    if not news:
        with ctx.connections.waiting(ctx.connection):
            await desk.wait(waiter, seconds)
        news = {} if waiter.lost else desk.cancelled(wanted.by)
    granted = waiter.granted
    if waiter.lost:
        desk.give_back(granted)
        return "ok", _grants(ctx, [], {})
    ctx.connection.if_lost(functools.partial(desk.give_back, granted))
    desk.remember(wanted.by, key, granted)
    return "ok", _grants(ctx, granted, news)


def _wanted(ctx: Context, request: JsonObject) -> Wanted:
    default = ctx.leases.grants.seconds
    return Wanted(
        by=_by(ctx, request),
        count=_whole(request, "count", 1, MOST),
        seconds=said.seconds(request, "seconds", default, 1.0, LONGEST),
    )


def _by(ctx: Context, request: JsonObject) -> str:
    """Return who asks: the name of a user, and a label of his own."""
    label = _visible(request, "label", LABEL)
    who = asker(ctx, request)
    return f"{who}/{label}" if label else who


def _hear(ctx: Context, by: str, request: JsonObject) -> None:
    slots = _whole(request, "slots", -1, 1_000_000)
    ctx.leases.workers.hear(
        by,
        None if slots < 0 else slots,
        _visible(request, "version", VERSION),
        _visible(request, "host", LABEL),
    )


def _grants(
    ctx: Context, granted: Sequence[Granted], news: dict[str, str]
) -> GrantsView:
    owner = ctx.owner
    reply: GrantsView = {
        "leases": [_grant(owner, grant) for grant in granted],
        "why": None,
        "base_url": owner.main.base_url,
        "env": owner.main.env,
    }
    if news:
        reply["cancels"] = news
    if not granted:
        reply["why"] = ctx.leases.grants.why_none() or "nothing is due"
    return reply


def _grant(owner: Owner, grant: Granted) -> Grant:
    message = grant.message
    fields = message.to_json()
    fields.pop("attachments", None)
    files = message.attachments.items()
    fetches = (owner.config.pull or {}).get("fetch", True)
    return {
        "token": grant.token,
        "msg_id": message.msg_id,
        "full_id": owner.full_id(message.msg_id),
        "attempt": message.attempt,
        "seconds": grant.lease.seconds,
        "message": fields,
        "attachments": [
            {"name": name, "size": file.size, "sha256": file.sha256}
            for name, file in files
        ],
        "limits": {} if fetches else {"fetch": False},
    }


# ---- words about tokens


def start(ctx: Context, arg: bytes) -> NowOrLater[Results]:
    """Confirm leases: their holder has the tokens, and begins."""

    def confirm(token: str) -> WordResult:
        return _of(ctx.leases.held(token))

    return _each_token(ctx, object_in(arg), confirm)


def renew(ctx: Context, arg: bytes) -> NowOrLater[Results]:
    """Let leases go on."""
    request = object_in(arg)
    seconds = said.seconds(request, "seconds", 0.0, 1.0, LONGEST) or None

    def go_on(token: str) -> WordResult:
        held = ctx.leases.held(token)
        granted = ctx.leases.renew(held, seconds)
        return {**_of(held), "seconds": granted}

    reply = _each_token(ctx, request, go_on)
    if inspect.isawaitable(reply):
        return _renewed(ctx, reply)
    ctx.leases.write_renewals()
    return reply


async def _renewed(ctx: Context, coming: Awaitable[Ok[Results]]) -> Ok[Results]:
    reply = await coming
    ctx.leases.write_renewals()
    return reply


def release(ctx: Context, arg: bytes) -> NowOrLater[Results]:
    """Give messages back, uncounted."""
    request = object_in(arg)
    why = said.text_of(request.get("why"))[: said.MOST_WHY]

    def give_back(token: str) -> WordResult:
        return {"state": ctx.leases.release(token, why)}

    return _each_token(ctx, request, give_back)


def finish(ctx: Context, arg: bytes) -> NowOrLater[Results]:
    """End attempts, each as its holder says."""
    finishes = _listed(object_in(arg), "finishes")

    def end(item: Json, files: Mapping[str, Attachment] = NO_FILES) -> WordResult:
        token, finish = _finish_in(item)
        return {"state": ctx.leases.finish(token, finish, files)}

    if any(isinstance(item, dict) and item.get("files") for item in finishes):
        return _with_files(ctx, finishes, end)
    return _each(ctx, finishes, end)


def _finish_in(item: Json) -> tuple[str, said.Finish]:
    if not isinstance(item, dict):
        raise BadInput('a finish is an object: {"token": …, "word": "done"}')
    return _token(item), said.finish(item)


async def _with_files(
    ctx: Context,
    finishes: Sequence[Json],
    end: Callable[[Json, Mapping[str, Attachment]], WordResult],
) -> Ok[Results]:
    """End attempts, some of which end with files."""
    results: list[WordResult] = []
    for item in finishes:
        try:
            files = await ctx.leases.verified(*_finish_in(item))
        except (OSError, RQError) as error:
            results.append(_result(item, functools.partial(_fail, error)))
        else:
            results.append(_result(item, functools.partial(_end_with, end, files)))
    return "ok", {"results": results}


def _end_with(
    end: Callable[[Json, Mapping[str, Attachment]], WordResult],
    files: Mapping[str, Attachment],
    item: Json,
) -> WordResult:
    return end(item, files)


def _fail(error: OSError | RQError, item: Json) -> WordResult:
    raise error


def file(ctx: Context, arg: bytes) -> Awaitable[Ok[WordResult]]:
    """Take a file that an attempt hands in: a passed descriptor, or a path that is opened
    with the asker's rights."""
    request = object_in(arg)
    passed, asker = ctx.connection.take_fd(), ctx.connection.asker
    source = passed if passed is not None else open_file(request, asker.peer)
    return _handed_in(ctx, request, source)


async def _handed_in(ctx: Context, request: JsonObject, source: int) -> Ok[WordResult]:
    try:
        name = names.attachment(request.get("name"))
        held = ctx.leases.held(_token(request))
        taken = await ctx.leases.hand_in(held, name, source)
        row: WordResult = {**_of(held), "sha256": taken.sha256, "size": taken.size}
    except (OSError, RQError) as error:
        return "ok", _result(request, functools.partial(_fail, error))
    finally:
        os.close(source)
    return "ok", _result(request, lambda _: row)


def progress(ctx: Context, arg: bytes) -> Ok[WordResult]:
    """Show how far an attempt is."""
    request = object_in(arg)

    def show(item: Json) -> WordResult:
        fraction = said.share(request, "fraction")
        text = said.text_of(request.get("text"))
        held = ctx.leases.held(_token(request))
        ctx.leases.progress(held, text, fraction)
        return _of(held)

    return "ok", _result(request, show)


def log(ctx: Context, arg: bytes) -> Ok[WordResult]:
    """Append what an attempt has printed to the log of its message."""
    request = object_in(arg)

    def write(item: Json) -> WordResult:
        offset = _whole(request, "offset", 0, 2**62)
        data = said.data_of(request.get("data"))
        held = ctx.leases.held(_token(request))
        gap = request.get("gap") is True
        return {**_of(held), "have": ctx.leases.write_log(held, offset, data, gap)}

    return "ok", _result(request, write)


def _of(held: Lease) -> WordResult:
    """Return what the holder of a lease is told with every answer."""
    return {} if held.cancelled is None else {"cancel": held.cancelled}


def _each_token(
    ctx: Context, request: JsonObject, act: Callable[[str], WordResult]
) -> NowOrLater[Results]:
    return _each(ctx, _listed(request, "tokens"), lambda token: act(_text(token)))


def _each(
    ctx: Context, items: Sequence[Json], act: Callable[[Json], WordResult]
) -> NowOrLater[Results]:
    """Act on each item; answer a row for each, in their order."""
    results: list[WordResult] = []

    def take(item: Json) -> None:
        results.append(_result(item, act))

    if len(items) > FEW:
        return _in_turns(ctx, items, take, results)
    for item in items:
        take(item)
    return "ok", {"results": results}


async def _in_turns(
    ctx: Context,
    items: Sequence[Json],
    take: Callable[[Json], None],
    results: list[WordResult],
) -> Ok[Results]:
    await in_slices(items, take, ctx.owner.wake)
    return "ok", {"results": results}


def _result(item: Json, act: Callable[[Json], WordResult]) -> WordResult:
    token = item.get("token") if isinstance(item, dict) else item
    about: WordResult = {"token": token if isinstance(token, str) else ""}
    try:
        return {**about, "ok": True, **act(item)}
    except WrongOffset as error:
        about["have"] = error.have
        failure: RQError = error
    except OSError as error:
        failure = not_done(error)
    except RQError as error:
        failure = error
    return {**about, "ok": False, "kind": str(failure.kind), "text": str(failure)}


# ---- looking


def leases(ctx: Context, arg: bytes) -> Ok[LeasesView]:
    """Answer who holds what, in the order of the messages, and who asks for leases."""
    request = object_in(arg) if arg.strip() else {}
    limit = _whole(request, "limit", PAGE, PAGE) or PAGE
    after = _visible(request, "cursor", LABEL)
    out, desk = ctx.owner.leases, ctx.leases
    ids = (lease.msg_id for lease in out if lease.msg_id > after)
    page = heapq.nsmallest(limit + 1, ids)
    rows = [_row(ctx.owner, msg_id) for msg_id in page[:limit]]
    return "ok", {
        "leases": rows,
        "count": len(out),
        "max": desk.grants.most,
        "next": page[limit - 1] if len(page) > limit else None,
        "workers": desk.workers.rows(),
    }


def _row(owner: Owner, msg_id: str) -> LeaseRow:
    held = owner.leases.of(msg_id)
    assert held is not None, "it was just listed"
    return {
        "msg_id": msg_id,
        "attempt": held.held.attempt,
        "by": held.by,
        "since": held.held.since,
        "until": owner.spool.clock() + held.deadline - owner.leases.now(),
        "seconds": held.seconds,
        "started": held.started,
        "text": held.text,
        "fraction": held.fraction,
    }


# ---- arguments


def _whole(request: JsonObject, name: str, default: int, most: int) -> int:
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadInput(f"{name} is {value!r:.60}, and not a whole number up to {most}")
    return value


def _visible(request: JsonObject, name: str, most: int) -> str:
    value = request.get(name)
    if value is None:
        return ""
    if isinstance(value, str) and value.isprintable() and len(value) <= most:
        return value
    raise BadInput(f"{name} is not a text of at most {most} visible characters")


def _listed(request: JsonObject, name: str) -> Sequence[Json]:
    value = request.get(name)
    if isinstance(value, list) and 0 < len(value) <= MOST:
        return value
    raise BadInput(f"{name} is not a list of 1 to {MOST}")


def _token(request: JsonObject) -> str:
    return _text(request.get("token"))


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    raise BadInput(f"token is {value!r:.60}, and not a text")


COMMANDS: dict[str, Command] = {
    "lease": Command(lease, Role.WORKER, down=True),
    "start": Command(start, Role.WORKER, down=True),
    "renew": Command(renew, Role.WORKER, down=True),
    "progress": Command(progress, Role.WORKER, down=True),
    "log": Command(log, Role.WORKER, down=True),
    "finish": Command(finish, Role.WORKER, down=True),
    "file": Command(file, Role.WORKER, down=True),
    "release": Command(release, Role.WORKER, down=True),
    "leases": Command(leases, Role.VIEWER, down=True),
}
