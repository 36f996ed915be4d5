"""The ancestor's REST for queues, for programs and forms alike; messages: `messages`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC

import falcon
import orjson
from falcon.asgi import Request, Response

from rq import moments, names
from rq.access.roles import Principal, Role
from rq.config import read_json, secrets
from rq.errors import BadInput, NoSuchQueue, NotPermitted, RQError, WrongState
from rq.kinds import Kind
from rq.nesting import Json
from rq.web import (
    attachments,
    bulk_actions,
    downloads,
    edits,
    forms,
    messages,
    monitoring,
    relay_actions,
    resumable_uploads,
    views,
)
from rq.web.answers import (
    failure_in,
    say,
    say_json,
    say_reply,
    say_text,
    sees_secrets,
    wants_json,
)
from rq.web.deeds import OF_QUEUE
from rq.web.pages import deliveries, txn
from rq.web.routes import Routes
from rq.web.site import Site

_STATES = ("prep", "que", "run", "done", "err", "relayed")
_LIMITS = ("timeout", "heartbeat", "memory", "log_bytes")
_NEW_QUEUE = ("name", "script", "num_workers", "exec_prefix", *_LIMITS)
_MOST_LISTED = 10_000
_PARAM_LISTS = ("coalesce_params", "blocking_params")


def add_routes(routes: Routes, site: Site) -> None:
    """Add every route that is no page."""
    queues = Queues(site)
    routes.get("/q.txt", queues.names_text, Role.VIEWER, shared=True)
    routes.get("/q.json", queues.names_json, Role.VIEWER, shared=True)
    routes.get("/q/{name}.txt", queues.text, Role.VIEWER)
    routes.get("/q/{name}.json", queues.json, Role.VIEWER)
    routes.get("/q/{name}/done.json", queues.done, Role.VIEWER)
    routes.get("/q/{name}/config.json", queues.config_file, Role.VIEWER)
    routes.get("/q/{name}/config", queues.config, Role.VIEWER)
    routes.post("/new_queue", queues.create, Role.ADMIN)
    routes.post("/delete_queue", queues.delete, Role.ADMIN)
    routes.post("/q/{name}/adminoper", queues.administer, Role.OPERATOR)
    routes.post("/q/{name}/restart", queues.restart, Role.OPERATOR)
    routes.post("/q/{name}/ack_errs", queues.acknowledge, Role.OPERATOR)
    messages.add_routes(routes, site)
    edits.add_routes(routes, site)
    attachments.add_routes(routes, site)
    downloads.add_routes(routes, site)
    resumable_uploads.add_routes(routes, site)
    txn.add_actions(routes, site)
    bulk_actions.add_routes(routes, site)
    relay_actions.add_routes(routes, site)
    deliveries.add_actions(routes, site)
    monitoring.add_routes(routes, site)


class Queues:
    """Lists, counts and settings of queues."""

    def __init__(self, site: Site) -> None:
        self._site = site

    # ---- looking

    async def names_text(self, req: Request, resp: Response) -> None:
        lines = [f"q/{name}.txt\n" for name in self._names(req)]
        say_text(resp, "".join(lines) + "\n")

    async def names_json(self, req: Request, resp: Response) -> None:
        say_json(resp, self._names(req))

    def _names(self, req: Request) -> list[str]:
        principal: Principal = req.context.principal
        return [name for name in self._site.queue_names() if principal.sees(name)]

    async def text(self, req: Request, resp: Response, name: str) -> None:
        facts = await self._facts(name)
        say_text(resp, "\n".join(f"{key}: {value}\n" for key, value in facts.items()))

    async def json(self, req: Request, resp: Response, name: str) -> None:
        facts = await self._facts(name)
        sizes = {f"{k}_size" if k in _STATES else k: v for k, v in facts.items()}
        say_json(resp, sizes)

    async def _facts(self, name: str) -> dict[str, object]:
        detail = await views.demand_detail(self._site.owners, name)
        if detail["status"] == "DOWN":
            return {"status": "DOWN"}
        counts = {state: detail["counts"][state] for state in _STATES}
        return {"status": detail["status"], "uptime": detail["uptime"], **counts}

    async def done(self, req: Request, resp: Response, name: str) -> None:
        limit = req.get_param_as_int("limit", default=10, max_value=_MOST_LISTED)
        request = {"state": "done", "limit": limit}
        say_reply(resp, await self._site.owners.ask(name, "messages", request))

    async def config_file(self, req: Request, resp: Response, name: str) -> None:
        path = self._site.root.queue(_named(name)).config
        try:
            data = path.read_bytes()
        except OSError:
            raise NoSuchQueue(f"there is no queue {name}") from None
        if not sees_secrets(req):
            data = orjson.dumps(secrets.masked(read_json(path)))
        resp.content_type = falcon.MEDIA_JSON
        resp.data = data

    async def config(self, req: Request, resp: Response, name: str) -> None:
        config = await views.config(self._site.owners, name)
        say_json(resp, config if sees_secrets(req) else secrets.masked(config))

    # ---- changing

    async def create(self, req: Request, resp: Response) -> None:
        if not self._site.config.allow_new_queue:
            raise NotPermitted(
                "Queues may not be made here: allow_new_queue is not true in "
                "config/config.json."
            )
        form = await forms.read(req)
        wanted = form.nested("queue")
        if not wanted:
            raise BadInput("say queue[name] and queue[script]")
        reply = await self._site.owners.supervisor("create_queue", _config_of(wanted))
        error = failure_in(reply)
        if error is not None and not wants_json(form):
            error = _why_not_made(error, wanted)
            await self._site.refilled.queue(req, resp, form, error)
            return
        say(
            self._site,
            req,
            resp,
            form,
            reply,
            f"/q/{wanted['name']}",
            "the queue is made",
        )

    async def delete(self, req: Request, resp: Response) -> None:
        form = await forms.read(req)
        name = form.get("queue_name")
        self._must_exist(name)
        reply = await self._site.owners.supervisor("delete_queue", name)
        say(self._site, req, resp, form, reply, "/")

    async def administer(self, req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        given = [verb for verb in OF_QUEUE if form.has(verb)]
        if not given or len(given) == len(OF_QUEUE):
            raise BadInput(f"say one of {', '.join(f'{verb}=1' for verb in OF_QUEUE)}")
        self._must_exist(name)
        about = _pause(req, name, form) if given[0] == "pause" else name
        reply = await self._site.owners.supervisor(f"{given[0]}_queue", about)
        text = OF_QUEUE[given[0]].done.format(name=name)
        say(self._site, req, resp, form, reply, f"/q/{name}", text)

    async def restart(self, req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        self._must_exist(name)
        reply = await self._site.owners.supervisor("restart_queue", name)
        say(self._site, req, resp, form, reply, f"/q/{name}", f"{name} is restarting")

    async def acknowledge(self, req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        request = {"before": _seconds(form.get("before"))} if form.has("before") else {}
        reply = await self._site.owners.ask(name, "ack_errs", request)
        if failure_in(reply):
            say(self._site, req, resp, form, reply, f"/q/{name}")
            return
        text = "1 error is" if reply[1] == 1 else f"{reply[1]} errors are"
        text = f"{text} acknowledged"
        if reply[2:]:
            text = f"{text}; {reply[2]} failed meanwhile: look at these first"
        say(self._site, req, resp, form, reply, f"/q/{name}", text)

    def _must_exist(self, name: str) -> None:
        if not self._site.root.queue(_named(name)).config.is_file():
            raise NoSuchQueue(f"there is no queue {name}")


def _seconds(text: str) -> Json:
    """Return a number; a text that is none as it is, of which the owner says so."""
    try:
        seconds = float(text)
    except ValueError:
        return text
    return seconds if math.isfinite(seconds) else text


def _named(name: str) -> str:
    """Return a name that may become part of a path."""
    if names.is_queue_name(name):
        return name
    raise NoSuchQueue(f"there is no queue {name!r:.80}")


def _pause(req: Request, name: str, form: forms.Form) -> dict[str, object]:
    """Return what a form says of a pause."""
    until = form.get("until").strip()
    return {
        "queue": name,
        "why": form.get("why").strip(),
        "until": moments.until(until, time.time(), UTC) if until else None,
        "who": messages.who(req),
    }


def _why_not_made(error: RQError, wanted: Mapping[str, object]) -> RQError:
    """Return a refusal of the supervisor, which keeps the ancestor's words, as a sentence."""
    if not (wanted.get("script") or wanted.get("pull")):
        return BadInput(
            "Who works on its messages? Name a script that runs here, or let workers "
            "elsewhere take them."
        )
    if error.kind is not Kind.WRONG_STATE:
        return error
    name = wanted.get("name")
    return WrongState(f"There is already a queue {name}; choose another name.")


def _config_of(wanted: Mapping[str, object]) -> dict[str, object]:
    """Return the queue config that a form asks for; blank fields are not set, but a blank
    prefix is one: the script is started directly. `pull` is ticked or not."""
    config = {key: wanted[key] for key in _NEW_QUEUE if wanted.get(key)}
    if wanted.get("exec_prefix") == "":
        config["exec_prefix"] = ""
    if wanted.get("pull"):
        config["pull"] = {}
    for key in _PARAM_LISTS:
        chosen = wanted.get(key)
        if isinstance(chosen, list):
            config[key] = [number for number in chosen if number]
    return config
