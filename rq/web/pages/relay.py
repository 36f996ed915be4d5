"""The relay: what is on its way to other hosts, and which of them are left alone."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq import backoff, transfers
from rq.backoff import Left
from rq.layout import Root
from rq.transfers import QUEUE, Transfer
from rq.web import owing
from rq.web.messages import checked
from rq.web.pages import confirm, facts, page
from rq.web.pages.confirm import Question

if TYPE_CHECKING:
    from rq.web.site import Site

_LOOKED_AT = 5000  # messages of a state: a page must not read a million files
_SHOWN = 200
_SHARED_FOR = 1.0  # seconds

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


class RelayPage:
    """GET /relay and its twin, and the questions before its actions."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: tuple[list[Transfer], list[Left]] = ([], [])
        self._until = 0.0
        self._turn = asyncio.Lock()

    async def on_get(self, req: Request, resp: Response) -> None:
        told = await self._facts(live=bool(req.get_header("X-RQ-Live")))
        values = {
            "facts": told,
            "transfers": told["transfers"][:_SHOWN],
            "more": max(0, len(told["transfers"]) - _SHOWN),
        }
        await page.show(req, resp, self._site, "relay.html", values)

    async def _facts(self, live: bool) -> dict[str, Any]:
        site, now = self._site, time.time()
        there = site.root.queue(QUEUE).config.is_file()
        row = facts.queue_row(site, QUEUE, await facts.detail(site, QUEUE), {})
        found, left = await self._look(live) if there else ([], [])
        return {
            "time": now,
            "queue": row if there else None,
            "trouble": facts.trouble({}, [row]) if there else [],
            "in_doubt": sum(one.in_doubt for one in found),
            "transfers": [one.to_json() for one in found],
            "peers": peers(found, left, now),
            "owed": await owing.listed(site, facts.queue_names(site.root)),
        }

    async def _look(self, live: bool) -> tuple[list[Transfer], list[Left]]:
        """Read the files, once for all pages that renew themselves."""
        async with self._turn:
            if not live or time.monotonic() >= self._until:
                self._known = await asyncio.to_thread(_look, self._site.root)
                self._until = time.monotonic() + _SHARED_FOR
            return self._known

    # ---- questions

    async def of_all(self, req: Request, resp: Response, verb: str) -> None:
        base = self._site.url("/relay")
        question = confirm.chosen(OF_ALL, verb)
        fields = confirm.sent(question, base)
        await confirm.ask(req, resp, self._site, question, QUEUE, base, base, fields)

    async def of_one(
        self, req: Request, resp: Response, msg_id: str, verb: str
    ) -> None:
        question = confirm.chosen(OF_ONE, verb)
        one = await asyncio.to_thread(transfers.find, self._site.root, checked(msg_id))
        base = self._site.url("/relay")
        fields = confirm.sent(question, base)
        about, action = f"{one.msg_id} to {one.dest}", f"{base}/{one.msg_id}"
        await confirm.ask(req, resp, self._site, question, about, base, action, fields)


def _look(root: Root) -> tuple[list[Transfer], list[Left]]:
    return transfers.ls(root, _LOOKED_AT), backoff.ls(root.queue(QUEUE), time.time())


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
