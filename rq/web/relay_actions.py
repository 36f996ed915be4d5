"""What a person does about messages on their way to other hosts."""

from __future__ import annotations

import asyncio

import falcon
from falcon.asgi import Request, Response

from rq import host_back_off, transfers, wire
from rq.access.roles import Role
from rq.errors import Busy, RQError
from rq.lines.owners import Reply
from rq.message.actions import ACTIONS, Word
from rq.transfers import QUEUE, Transfer
from rq.web import forms
from rq.web.answers import failure_in, say
from rq.web.messages import checked, sentence_of, who
from rq.web.routes import Routes
from rq.web.site import Site

PAGE = "/relay"
_NO_METHOD = "_method is none of retry, arrived and again"


def add_routes(routes: Routes, site: Site) -> None:
    """Add the actions of the page `/relay`."""
    relay = RelayActions(site)
    routes.post(PAGE, relay.change_all, Role.OPERATOR, queue=QUEUE)
    routes.post(PAGE + "/{msg_id}", relay.change, Role.OPERATOR, queue=QUEUE)


class RelayActions:
    """Trying again, and saying whether something has arrived."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._queue = site.root.queue(QUEUE)

    async def change_all(self, req: Request, resp: Response) -> None:
        """Try all again but those in doubt."""
        form = await forms.read(req)
        if form.get("_method") != "retry":
            raise falcon.HTTPBadRequest(description="_method is not retry")
        tried = 0
        for transfer in await asyncio.to_thread(transfers.ls, self._site.root):
            if not transfer.in_doubt:
                tried += await self._is_tried(req, transfer)
        reply: Reply = ["ok", tried]
        many = "1 message is" if tried == 1 else f"{tried} messages are"
        text = f"{many} tried again" if tried else "there was nothing to try again"
        say(self._site, req, resp, form, reply, PAGE, text)

    async def _is_tried(self, req: Request, transfer: Transfer) -> bool:
        try:
            return failure_in(await self._go(req, transfer)) is None
        except RQError:
            return False  # it has ended meanwhile

    async def change(self, req: Request, resp: Response, msg_id: str) -> None:
        form = await forms.read(req)
        method = form.get("_method")
        root, short = self._site.root, checked(msg_id)
        transfer = await asyncio.to_thread(transfers.find, root, short)
        if method == "retry":
            reply = await self._go(req, transfer)
            text = f"{short} is tried again"
        elif method == "arrived":
            ack = ACTIONS[Word.ACK]
            request = {"msg_id": transfer.msg_id, "who": who(req)}
            reply = await self._site.owners.ask(QUEUE, ack.command, request)
            text = f"{sentence_of(ack, short)}: it has arrived"
        elif method == "again":
            await asyncio.to_thread(transfers.send_again, root, transfer)
            reply = await self._go(req, transfer)
            text = f"{short} is sent again, as a new message there"
        else:
            raise falcon.HTTPBadRequest(description=_NO_METHOD)
        say(self._site, req, resp, form, reply, PAGE, text)

    async def _go(self, req: Request, transfer: Transfer) -> Reply:
        """Let a message be tried at once, and its host be asked."""
        command = transfers.command(transfer)
        if command is None:
            error = Busy(f"{transfer.msg_id} is being handed over right now")
            return wire.failure(error, with_kind=True)
        await asyncio.to_thread(host_back_off.pardon, self._queue, transfer.peer)
        request = {"msg_id": transfer.msg_id, "who": who(req)}
        return await self._site.owners.ask(QUEUE, command, request)
