"""The commands of those who work on messages elsewhere: start, renew, finish, …

Each word is about a token. What became of it is told for each token by itself, in a row
`{"token", "ok": true, …}` or `{"token", "ok": false, "kind", "text"}`, so that a bulk of
words never fails as a whole.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from rq import names
from rq.errors import BadInput, RQError, WrongOffset, not_done
from rq.message.fields import Attachment, JsonObject
from rq.proc.slices import Slice, in_slices
from rq.queues import arguments
from rq.queues.attempts.lease import Lease
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Request,
)
from rq.queues.control.create import open_file
from rq.queues.leases import said
from rq.replies import WordResult
from rq.words.nesting import Json
from rq.words.states import public

MOST = 1000  # tokens in one request
LONGEST = 86_400.0  # seconds
_NO_FILES: Mapping[str, Attachment] = {}

Results = dict[str, list[WordResult]]


def start(ctx: Context, request: Request) -> NowOrLater[Results]:
    """Confirm leases: their holder has the tokens, and begins."""

    def confirm(token: str) -> WordResult:
        return _of(ctx.leases.held(token))

    return _each_token(ctx, request, confirm)


def renew(ctx: Context, request: Request) -> NowOrLater[Results]:
    """Renew leases."""
    seconds = arguments.seconds(request, "seconds", 0.0, 1.0, LONGEST) or None

    def go_on(token: str) -> WordResult:
        held = ctx.leases.held(token)
        granted = ctx.leases.renew(held, seconds)
        return {**_of(held), "seconds": granted}

    return _each_token(ctx, request, go_on)


def release(ctx: Context, request: Request) -> NowOrLater[Results]:
    """Give messages back, uncounted; `unheard`: their holder has hung up before it was
    told of its leases, says who was to tell it."""
    why = said.text_of(request.get("why"))[: said.MOST_WHY]
    unheard = request.get("unheard") is True

    def give_back(token: str) -> WordResult:
        if unheard:
            return {"state": public(ctx.leases.unheard(token))}
        return {"state": public(ctx.leases.release(token, why))}

    return _each_token(ctx, request, give_back)


def finish(ctx: Context, request: Request) -> NowOrLater[Results]:
    """End attempts, each as its holder says."""
    finishes = arguments.listed(request, "finishes", MOST)

    def end(item: Json) -> WordResult:
        token, finish = _finish_in(item)
        return {"state": public(ctx.leases.finish(token, finish, _NO_FILES))}

    if any(isinstance(item, dict) and item.get("files") for item in finishes):
        return _with_files(ctx, finishes)
    return _each(ctx, finishes, end)


def _finish_in(item: Json) -> tuple[str, said.Finish]:
    if not isinstance(item, dict):
        raise BadInput('a finish is an object: {"token": …, "word": "done"}')
    return arguments.token(item.get("token")), said.finish(item)


async def _with_files(ctx: Context, finishes: Sequence[Json]) -> Ok[Results]:
    """End attempts, some of which end with files."""
    return "ok", {"results": [await _ended(ctx, item) for item in finishes]}


async def _ended(ctx: Context, item: Json) -> WordResult:
    try:
        token, finish = _finish_in(item)
        files = await ctx.leases.verified(token, finish)
        return _row(item, {"state": public(ctx.leases.finish(token, finish, files))})
    except (OSError, RQError) as error:
        return _row(item, error)


def file(ctx: Context, request: Request) -> Awaitable[Ok[WordResult]]:
    """Take a file that an attempt hands in: a passed descriptor, or a path that is opened
    with the asker's rights."""
    passed, asker = ctx.connection.take_fd(), ctx.connection.asker
    source = passed if passed is not None else open_file(request, asker.peer)
    return _handed_in(ctx, request, source)


async def _handed_in(ctx: Context, request: JsonObject, source: int) -> Ok[WordResult]:
    try:
        name = names.attachment(request.get("name"))
        held = ctx.leases.held(arguments.token(request.get("token")))
        taken = await ctx.leases.hand_in(held, name, source)
        row: WordResult = {**_of(held), "sha256": taken.sha256, "size": taken.size}
        return "ok", _row(request, row)
    except (OSError, RQError) as error:
        return "ok", _row(request, error)
    finally:
        os.close(source)


def progress(ctx: Context, request: Request) -> Ok[WordResult]:
    """Show how far an attempt is."""

    def show(token: str) -> WordResult:
        fraction = said.share(request, "fraction")
        text = said.text_of(request.get("text"))
        held = ctx.leases.held(token)
        ctx.leases.progress(held, text, fraction)
        return _of(held)

    return "ok", _about(request, show)


def log(ctx: Context, request: Request) -> Ok[WordResult]:
    """Append what an attempt has printed to the log of its message."""

    def write(token: str) -> WordResult:
        offset = arguments.whole(request, "offset", 0, 2**62)
        data = said.data_of(request.get("data"))
        held = ctx.leases.held(token)
        gap = request.get("gap") is True
        return {**_of(held), "have": ctx.leases.write_log(held, offset, data, gap)}

    return "ok", _about(request, write)


def _of(held: Lease) -> WordResult:
    """Return what the holder of a lease is told with every answer."""
    return {} if held.cancelled is None else {"cancel": held.cancelled}


# ---- a row for each word


def _about(request: JsonObject, act: Callable[[str], WordResult]) -> WordResult:
    """Act on the one token that a request is about; return its row."""
    return _acted(request, lambda _: act(arguments.token(request.get("token"))))


def _each_token(
    ctx: Context, request: JsonObject, act: Callable[[str], WordResult]
) -> NowOrLater[Results]:
    tokens = arguments.listed(request, "tokens", MOST)
    return _each(ctx, tokens, lambda token: act(arguments.token(token)))


def _each(
    ctx: Context, items: Sequence[Json], act: Callable[[Json], WordResult]
) -> NowOrLater[Results]:
    """Act on each item; answer a row for each, in their order. What takes longer than a
    slice, be they many or large, takes turns with other requests."""
    turn = Slice()
    results: list[WordResult] = []
    left = iter(items)
    for item in left:
        results.append(_acted(item, act))
        if turn.is_over:
            return _in_turns(ctx, left, act, results)
    return "ok", {"results": results}


async def _in_turns(
    ctx: Context,
    left: Iterator[Json],
    act: Callable[[Json], WordResult],
    results: list[WordResult],
) -> Ok[Results]:
    """Act on what is left, from the next turn on; `results` are those of before."""
    ctx.owner.wake()
    await asyncio.sleep(0)
    await in_slices(
        left, lambda item: results.append(_acted(item, act)), ctx.owner.wake
    )
    return "ok", {"results": results}


def _acted(item: Json, act: Callable[[Json], WordResult]) -> WordResult:
    try:
        return _row(item, act(item))
    except (OSError, RQError) as error:
        return _row(item, error)


def _row(item: Json, outcome: WordResult | OSError | RQError) -> WordResult:
    """Return what is told of a word: what it has led to, or why it has not."""
    token = item.get("token") if isinstance(item, dict) else item
    row: WordResult = {"token": token if isinstance(token, str) else ""}
    if isinstance(outcome, dict):
        return {**row, "ok": True, **outcome}
    if isinstance(outcome, WrongOffset):
        row["have"] = outcome.have
    failure = not_done(outcome) if isinstance(outcome, OSError) else outcome
    return {**row, "ok": False, "kind": str(failure.kind), "text": str(failure)}


HANDLERS: dict[str, Handler] = {
    "start": start,
    "renew": renew,
    "progress": progress,
    "log": log,
    "finish": finish,
    "file": file,
    "release": release,
}
