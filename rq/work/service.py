"""What an agent asks of a queue's host, one method for each word of the interface."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import orjson

import rq
from rq.errors import BadInput, Unreachable
from rq.outbound.api import failure_of
from rq.outbound.exchange import Reply
from rq.outbound.host import Request, Sink
from rq.outbound.peers import Target
from rq.words.nesting import Json
from rq.work import answers
from rq.work.answers import File, Offer
from rq.work.holding import Result
from rq.work.link import Link

JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
MARGIN = 30.0  # seconds that an answer may come later than it was asked for
_STALL = 1800.0  # seconds for a large file
SCRIPT_LIMIT = 64 * 1024 * 1024  # bytes of a shared script's tar
_GONE = frozenset({409, 410})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request for leases says."""

    count: int  # 0: only what is cancelled
    wait: float  # seconds, until something is due
    request: str  # the same for the same request
    busy: int  # slots that work
    patience: float | None = None  # seconds until it is given up; None: never


class Service:
    """The interface of one queue."""

    def __init__(self, to: Target, link: Link, about: Mapping[str, Json]) -> None:
        """`about` tells of this worker with each request for leases: label, slots."""
        self._link = link
        self._peer = to.peer
        self._about = {**about, "version": rq.__version__}
        self._queue = f"{to.prefix}/api/v1/queues/{to.queue}"
        self._files = to.path(to.queue)  # of messages, for all who may look

    # ---- leases

    async def lease(self, wanted: Wanted) -> Offer:
        """Return what there is to do; RQError when nothing will ever be given."""
        body = {**self._about, "count": wanted.count, "wait": wanted.wait}
        body |= {"busy": wanted.busy, "request": wanted.request}
        request = self._posted("leases", body, wanted.wait)
        reply = await self._link.ask(request, wanted.patience)
        if reply.status != 200:
            raise failure_of(reply)
        offer = answers.offer(reply.body, time.time(), reply.sent)
        if len(offer.leases) + len(offer.refused) > wanted.count:
            raise BadInput(f"the answer has more than {wanted.count} leases")
        return offer

    async def start(self, tokens: Sequence[str]) -> list[Result]:
        """Say that the work on messages begins."""
        return await self._bulk("start", {"tokens": tokens}, len(tokens))

    async def renew(self, tokens: Sequence[str]) -> list[Result]:
        """Ask for as many seconds again."""
        return await self._bulk("renew", {"tokens": tokens}, len(tokens))

    async def finish(self, finishes: Sequence[Mapping[str, Json]]) -> list[Result]:
        """Say how attempts ended."""
        return await self._bulk("finish", {"finishes": finishes}, len(finishes))

    async def release(self, given_up: Sequence[tuple[str, str]]) -> list[Result]:
        """Give messages back; each with the reason."""
        done: list[Result] = []
        for why in dict.fromkeys(why for _, why in given_up):
            tokens = [token for token, reason in given_up if reason == why]
            body = {"tokens": tokens, "why": why}
            done += await self._bulk("release", body, len(tokens))
        return done

    async def _bulk(
        self, word: str, body: Mapping[str, Json], count: int
    ) -> list[Result]:
        def read(reply: Reply) -> list[Result]:
            if reply.status != 200:
                raise failure_of(reply)
            with self._understood():
                return answers.results(reply.body, count, reply.sent)

        return await self._link.say(self._posted(f"leases/{word}", body), read)

    # ---- about one token

    async def progress(self, token: str, text: str) -> Result:
        """Show what the script said last."""
        return await self._single(
            "PATCH", self._of(token), JSON, orjson.dumps({"text": text})
        )

    async def log(self, token: str, offset: int, data: bytes) -> Result:
        """Append to the log; `offset` is counted from the attempt's first byte. A result
        that is not ok may say how much has arrived."""
        headers = {**BYTES, "Upload-Offset": str(offset)}
        return await self._single("PUT", f"{self._of(token)}/log", headers, data)

    async def upload(self, token: str, file: File, start: int, piece: bytes) -> Result:
        """Send a piece of a result; one that is not the last is not ok, and says how much
        has arrived."""
        last = start + max(len(piece), 1) - 1
        headers = {
            **BYTES,
            "X-RQ-SHA256": file.sha256,
            "Content-Range": f"bytes {start}-{last}/{file.size}",
        }
        path = f"{self._of(token)}/files/{quote(file.name)}"
        return await self._single("PUT", path, headers, piece)

    def _of(self, token: str) -> str:
        return f"leases/{token}"

    async def _single(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Result:
        def read(reply: Reply) -> Result:
            if reply.status != 200 and reply.status not in _GONE:
                raise failure_of(reply)
            with self._understood():
                return answers.one_result(reply.body, reply.sent)

        request = Request(
            method=method,
            path=f"{self._queue}/{path}",
            headers=headers,
            body=body,
            patience=MARGIN * 4,
        )
        return await self._link.say(request, read)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        """Take what a word is answered for no answer, if it is none of an RQ."""
        try:
            yield
        except BadInput as error:
            text = f"{self._peer}: what answers is no RQ: {error}"
            raise Unreachable(text) from None

    # ---- files

    async def fetch(self, msg_id: str, file: File, sink: Callable[[], Sink]) -> None:
        """Give an attachment to what `sink` returns, which is called anew at each try; RQError when there is none."""
        path = f"{self._files}/{msg_id}/attach/{quote(file.name)}"
        reply = await self._link.ask(
            Request(
                method="GET",
                path=path,
                patience=_STALL,
                most=file.size,
                sink=sink,
            )
        )
        if reply.status != 200:
            raise failure_of(reply)

    async def script(self, digest: str) -> tuple[str, bytes] | None:
        """Return the digest and the tar of the script that the queue shares; None when
        its digest is this one."""
        request = Request(
            method="GET",
            path=f"{self._queue}/script",
            headers={"If-None-Match": f'"{digest}"'} if digest else {},
            most=SCRIPT_LIMIT,
            patience=_STALL,
        )
        reply = await self._link.ask(request)
        if digest and reply.status == 304:
            return None
        if reply.status != 200:
            raise failure_of(reply)
        return reply.headers.get("etag", "").strip('W/"'), reply.body

    # ---- asking

    def _posted(
        self, path: str, body: Mapping[str, Json], wait: float = 0.0
    ) -> Request:
        return Request(
            method="POST",
            path=f"{self._queue}/{path}",
            headers=JSON,
            body=orjson.dumps(body),
            patience=wait + MARGIN,
        )
