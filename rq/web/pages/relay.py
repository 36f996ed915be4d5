"""The relay: what is on its way to other hosts, and which of them do not answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from falcon.asgi import Request, Response

from rq.access.roles import Principal, Role
from rq.errors import Busy, RQError
from rq.layout import Root
from rq.message.actions import ACTIONS, Word
from rq.relay import host_back_off, transfers
from rq.relay.host_back_off import BackOff
from rq.relay.transfers import QUEUE, Transfer
from rq.replies.verdict import TroubleView
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web import forms, views
from rq.web.answers import failure_in, say
from rq.web.messages import checked, sentence_of, who
from rq.web.pages import confirm, deliveries, page
from rq.web.pages.confirm import Question, Subject
from rq.web.pages.facts import QueueRow, queue_names, queue_row, trouble
from rq.web.routes import Routes
from rq.web.site import Site

_LOOKED_AT = 5000  # messages of a state: a page must not read a million files
_MOST_LOOKED_AT = 100_000  # on request
_MOST_SHOWN = 200
_SHARED_FOR = 1.0  # seconds, for as many as are looked at unasked
_KINDS = 8  # how many looks of different length are kept
_LISTED = ("err", "run", "que")

OF_ALL = {
    "retry": Question(
        title="Try all messages again now?",
        sentence="All messages that wait or have failed are tried at once, also to hosts "
        "that did not answer lately. Those in doubt stay as they are.",
        button="Try all again",
        field=("_method", "retry"),
    ),
}
OF_ONE = {
    "retry": Question(
        title="Try to hand this message over now?",
        sentence="It is tried at once, also when its host did not answer lately.",
        button="Try again",
        field=("_method", "retry"),
    ),
    "arrived": Question(
        title="Has this message arrived there?",
        sentence="Look at the other host first. The message is acknowledged here, and "
        "nothing more is sent.",
        button="It has arrived",
        field=("_method", "arrived"),
    ),
    "again": Question(
        title="Send this message as a new one?",
        sentence="Look at the other host first: if it has arrived there after all, it "
        "runs there twice.",
        button="It has not: send it again",
        field=("_method", "again"),
        danger=True,
    ),
}


_Look = tuple[list[Transfer], list[BackOff]]
_PAGE = "/relay"


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of the relay and its twin, its questions, and what these send."""
    pages, here = RelayPage(site), "/relay/{msg_id}"
    routes.get(_PAGE, pages.on_get, Role.VIEWER, queue=QUEUE)
    routes.get(f"{_PAGE}.json", pages.on_get, Role.VIEWER, queue=QUEUE)
    routes.post(_PAGE, pages.change_all, Role.OPERATOR, queue=QUEUE)
    routes.post(here, pages.change, Role.OPERATOR, queue=QUEUE)
    routes.get("/relay/confirm/{verb}", pages.of_all, Role.OPERATOR, queue=QUEUE)
    routes.get(f"{here}/confirm/{{verb}}", pages.of_one, Role.OPERATOR, queue=QUEUE)


class RelayPage:
    """/relay and its twin, the questions before its actions, and their answers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._queue = site.root.queue(QUEUE)
        self._looks: dict[int, tuple[float, _Look]] = {}  # by length: until when, what
        self._turn = asyncio.Lock()

    async def on_get(self, req: Request, resp: Response) -> None:
        most = _most(req.get_param("most", default=""))
        facts = await self._facts(
            req.context.principal, most, live=bool(req.get_header("X-RQ-Live"))
        )
        values = {
            "facts": facts,
            "looked_at": most,
            "look_at_most": _MOST_LOOKED_AT,
            "transfers": facts["transfers"][:_MOST_SHOWN],
            "more": max(0, len(facts["transfers"]) - _MOST_SHOWN),
        }
        await page.show(req, resp, self._site, "relay.html", values)

    async def _facts(self, principal: Principal, most: int, live: bool) -> Facts:
        site, now = self._site, time.time()
        visible = filter(principal.sees, queue_names(site.root))
        there = site.root.queue(QUEUE).config.is_file()
        detail = await views.detail(site.owners, QUEUE)
        row = queue_row(site, QUEUE, detail, {})
        begun, hosts = await self._look(most, live) if there else ([], [])
        return {
            "time": now,
            "queue": row if there else None,
            "trouble": trouble({}, [row]) if there else [],
            "not_looked_at": not_looked_at(row["counts"], most),
            "in_doubt": sum(transfer.in_doubt for transfer in begun),
            "transfers": begun,
            "peers": peers(begun, hosts, now),
            "owed": await deliveries.listed(site, list(visible)),
        }

    async def _look(self, most: int, live: bool) -> _Look:
        """Read the files, once for all pages that renew themselves; a long look is kept
        for longer."""
        async with self._turn:
            until, look = self._looks.get(most, (0.0, ([], [])))
            if live and time.monotonic() < until:
                return look
            look = await asyncio.to_thread(_look, self._site.root, most)
            if len(self._looks) >= _KINDS:
                self._looks.clear()
            kept = _SHARED_FOR * max(1.0, most / _LOOKED_AT)
            self._looks[most] = time.monotonic() + kept, look
            return look

    # ---- questions

    async def of_all(self, req: Request, resp: Response, verb: str) -> None:
        base = self._site.url("/relay")
        question = confirm.chosen(OF_ALL, verb)
        subject = Subject(about=QUEUE, action=base, cancel=base)
        await confirm.ask(req, resp, self._site, question, subject)

    async def of_one(
        self, req: Request, resp: Response, msg_id: str, verb: str
    ) -> None:
        question = confirm.chosen(OF_ONE, verb)
        root, short = self._site.root, checked(msg_id)
        transfer = await asyncio.to_thread(transfers.find, root, short)
        base = self._site.url("/relay")
        subject = Subject(
            about=f"{transfer.msg_id} to {transfer.dest}",
            action=f"{base}/{transfer.msg_id}",
            cancel=base,
        )
        await confirm.ask(req, resp, self._site, question, subject)

    # ---- answers

    async def change_all(self, req: Request, resp: Response) -> None:
        """Try all again but those in doubt."""
        form = await forms.read(req)
        forms.method(form, OF_ALL)
        tried = 0
        for transfer in await asyncio.to_thread(transfers.ls, self._site.root):
            if not transfer.in_doubt:
                tried += await self._is_tried(req, transfer)
        reply: Reply = ["ok", tried]
        many = "1 message is" if tried == 1 else f"{tried} messages are"
        text = f"{many} tried again" if tried else "there was nothing to try again"
        say(self._site, req, resp, form, reply, _PAGE, text)

    async def _is_tried(self, req: Request, transfer: Transfer) -> bool:
        try:
            return failure_in(await self._go(req, transfer)) is None
        except RQError:
            return False  # it has ended meanwhile

    async def change(self, req: Request, resp: Response, msg_id: str) -> None:
        form = await forms.read(req)
        root, short = self._site.root, checked(msg_id)
        transfer = await asyncio.to_thread(transfers.find, root, short)
        method = forms.method(form, OF_ONE)
        if method == "retry":
            reply = await self._go(req, transfer)
            text = f"{short} is tried again"
        elif method == "arrived":
            ack = ACTIONS[Word.ACK]
            request = {"msg_id": transfer.msg_id, "who": who(req)}
            reply = await self._site.owners.ask(QUEUE, ack.command, request)
            text = f"{sentence_of(ack, short)}: it has arrived"
        else:  # again
            await asyncio.to_thread(transfers.send_again, root, transfer)
            reply = await self._go(req, transfer)
            text = f"{short} is sent again, as a new message there"
        say(self._site, req, resp, form, reply, _PAGE, text)

    async def _go(self, req: Request, transfer: Transfer) -> Reply:
        """Let a message be tried at once, and its host be asked."""
        command = transfers.command(transfer)
        if command is None:
            error = Busy(f"{transfer.msg_id} is being handed over right now")
            return wire.failure(error, with_kind=True)
        await asyncio.to_thread(host_back_off.pardon, self._queue, transfer.peer)
        request = {"msg_id": transfer.msg_id, "who": who(req)}
        return await self._site.owners.ask(QUEUE, command, request)


def _look(root: Root, most: int) -> _Look:
    return transfers.ls(root, most), host_back_off.ls(root.queue(QUEUE), time.time())


def _most(text: str) -> int:
    """Return how many messages of a state to look at."""
    number = int(text[:9]) if text.isascii() and text.isdigit() else _LOOKED_AT
    return min(max(number, 1), _MOST_LOOKED_AT)


def not_looked_at(counts: Mapping[str, int], most: int) -> int:
    """Return how many messages are not looked at, with `most` of each state that are.

    >>> not_looked_at({"err": 7, "run": 1, "que": 12, "done": 99}, 5)
    9
    """
    return sum(max(0, counts.get(state, 0) - most) for state in _LISTED)


class PeerRow(TypedDict):
    """A host, or a queue of it: how it is, why, and what is on its way to it."""

    name: str
    failures: int
    until: float  # epoch seconds
    asked: bool  # a message is being tried at this moment
    reason: str
    wait: float  # seconds
    messages: int


def peers(
    begun: Sequence[Transfer], hosts: Iterable[BackOff], now: float
) -> list[PeerRow]:
    """Return a row for each host, those that did not answer first."""
    number = Counter(transfer.peer for transfer in begun if transfer.peer)
    silent = {host.name: host for host in hosts}
    rows = [_peer(host, now, number[name]) for name, host in silent.items()]
    for name in sorted(number.keys() - silent.keys()):
        answers = BackOff(name=name, failures=0, until=0.0, is_tried=False, reason="")
        rows.append(_peer(answers, now, number[name]))
    return rows


def _peer(host: BackOff, now: float, messages: int) -> PeerRow:
    return {
        "name": host.name,
        "failures": host.failures,
        "until": host.until,
        "asked": host.is_tried,
        "reason": host.reason,
        "wait": max(0.0, host.until - now),
        "messages": messages,
    }


class Facts(TypedDict):
    """What the page shows."""

    time: float
    queue: QueueRow | None
    trouble: list[TroubleView]
    not_looked_at: int
    in_doubt: int
    transfers: list[Transfer]
    peers: list[PeerRow]
    owed: list[deliveries.OwedRow]
