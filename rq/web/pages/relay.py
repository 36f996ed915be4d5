"""The relay: what is on its way to other hosts, and which of them are left alone."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq import host_back_off, transfers
from rq.access.roles import Principal
from rq.host_back_off import Left
from rq.layout import Root
from rq.transfers import QUEUE, Transfer
from rq.web import owing
from rq.web.messages import checked
from rq.web.pages import confirm, facts, page
from rq.web.pages.confirm import Asked, Question

if TYPE_CHECKING:
    from rq.web.site import Site

_LOOKED_AT = 5000  # messages of a state: a page must not read a million files
_MOST_LOOKED_AT = 100_000  # for who asks for more
_SHOWN = 200
_SHARED_FOR = 1.0  # seconds, for as many as are looked at unasked
_KINDS = 8  # how many looks of different length are kept
_LISTED = ("err", "run", "que")

OF_ALL = {
    "retry": Question(
        title="Try all again now?",
        sentence="All that wait or have failed are tried at once, and each host is "
        "asked. Those in doubt stay as they are.",
        button="Try all again",
        field=("_method", "retry"),
    ),
}
OF_ONE = {
    "retry": Question(
        title="Try to hand this message over now?",
        sentence="Its host is asked at once, also one that is left alone for a while.",
        button="Try again",
        field=("_method", "retry"),
    ),
    "arrived": Question(
        title="Has this message arrived there?",
        sentence="Look at the other host first. It is acknowledged here, and nothing is "
        "sent any more.",
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


_Look = tuple[list[Transfer], list[Left]]


class RelayPage:
    """GET /relay and its twin, and the questions before its actions."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[int, tuple[float, _Look]] = {}  # by length: until when, what
        self._turn = asyncio.Lock()

    async def on_get(self, req: Request, resp: Response) -> None:
        most = _most(req.get_param("most", default=""))
        told = await self._facts(
            req.context.principal, most, live=bool(req.get_header("X-RQ-Live"))
        )
        values = {
            "facts": told,
            "looked_at": most,
            "look_at_most": _MOST_LOOKED_AT,
            "transfers": told["transfers"][:_SHOWN],
            "more": max(0, len(told["transfers"]) - _SHOWN),
        }
        await page.show(req, resp, self._site, "relay.html", values)

    async def _facts(
        self, principal: Principal, most: int, live: bool
    ) -> dict[str, Any]:
        site, now = self._site, time.time()
        queue_names = filter(principal.sees, facts.queue_names(site.root))
        there = site.root.queue(QUEUE).config.is_file()
        row = facts.queue_row(site, QUEUE, await facts.detail(site, QUEUE), {})
        found, left = await self._look(most, live) if there else ([], [])
        return {
            "time": now,
            "queue": row if there else None,
            "trouble": facts.trouble({}, [row]) if there else [],
            "not_looked_at": not_looked_at(row["counts"], most),
            "in_doubt": sum(one.in_doubt for one in found),
            "transfers": [one.to_json() for one in found],
            "peers": peers(found, left, now),
            "owed": await owing.listed(site, list(queue_names)),
        }

    async def _look(self, most: int, live: bool) -> _Look:
        """Read the files, once for all pages that renew themselves; a long look is kept
        for longer."""
        async with self._turn:
            until, known = self._known.get(most, (0.0, ([], [])))
            if live and time.monotonic() < until:
                return known
            known = await asyncio.to_thread(_look, self._site.root, most)
            if len(self._known) >= _KINDS:
                self._known.clear()
            kept = _SHARED_FOR * max(1.0, most / _LOOKED_AT)
            self._known[most] = time.monotonic() + kept, known
            return known

    # ---- questions

    async def of_all(self, req: Request, resp: Response, verb: str) -> None:
        base = self._site.url("/relay")
        question = confirm.chosen(OF_ALL, verb)
        asked = Asked(about=QUEUE, action=base, cancel=base)
        await confirm.ask(req, resp, self._site, question, asked)

    async def of_one(
        self, req: Request, resp: Response, msg_id: str, verb: str
    ) -> None:
        question = confirm.chosen(OF_ONE, verb)
        one = await asyncio.to_thread(transfers.find, self._site.root, checked(msg_id))
        base = self._site.url("/relay")
        asked = Asked(
            about=f"{one.msg_id} to {one.dest}",
            action=f"{base}/{one.msg_id}",
            cancel=base,
        )
        await confirm.ask(req, resp, self._site, question, asked)


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


def peers(
    found: Sequence[Transfer], left: Iterable[Left], now: float
) -> list[dict[str, Any]]:
    """Return a row for each host: how it is, why, what is on its way to it."""
    number = Counter(one.peer for one in found if one.peer)
    rows = [
        {**asdict(one), "wait": max(0.0, one.until - now), "messages": number[one.name]}
        for one in left
    ]
    for name in sorted(number.keys() - {one["name"] for one in rows}):
        rows.append({**_answers(name), "messages": number[name]})
    return rows


def _answers(name: str) -> Mapping[str, Any]:
    nothing = {"failures": 0, "until": 0.0, "wait": 0.0, "asked": False, "reason": ""}
    return {"name": name, **nothing}
