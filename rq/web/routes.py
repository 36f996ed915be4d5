"""The route table: which function answers which method and path, and who may ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import TypedDict, Unpack

from falcon import HTTP_303
from falcon.asgi import App, Request, Response

from rq.access.roles import Role

API = "/api/v1"  # below it programs speak JSON
# `async def handler(req, resp, **fields_of_the_path)`.
Handler = Callable[..., Awaitable[None]]


class Own(Enum):
    """What a route does for who has sent a message, without the role that it takes."""

    NOTHING = "nothing"
    SENDS = "it sends a message"
    MESSAGE = "it is about `msg_id`: the guard looks who has sent that"
    LIST = "it shows them their own messages alone, if any"


class Scope(TypedDict, total=False):
    """Which queues a route is about; as the fields of Right."""

    queue: str
    shared: bool
    own: Own


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Who may use a route.

    A client that may ask of some queues only may use a route of one of these: the queue
    is `queue`, or the field `name` of the path. A `shared` route is for them, too,
    because it shows nothing of queues, or looks itself at what they may see. `own`: what
    the role sender, and those that cover it, may do without `role`.
    """

    role: Role | None
    queue: str = ""
    shared: bool = False
    own: Own = Own.NOTHING


CLOSED = Right(role=None)  # of what names no right


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    handler: Handler
    right: Right


class Routes:
    """Collects handlers, so that several rooms can share a path by method."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, Route]] = {}

    def get(
        self, path: str, handler: Handler, role: Role, **right: Unpack[Scope]
    ) -> None:
        """Let `handler` answer GET (and HEAD) of `path`, say `/q/{name}`."""
        self.add("GET", path, handler, Right(role=role, **right))

    def post(
        self, path: str, handler: Handler, role: Role, **right: Unpack[Scope]
    ) -> None:
        """Let `handler` answer POST of `path`."""
        self.add("POST", path, handler, Right(role=role, **right))

    def put(
        self, path: str, handler: Handler, role: Role, **right: Unpack[Scope]
    ) -> None:
        """Let `handler` answer PUT of `path`."""
        self.add("PUT", path, handler, Right(role=role, **right))

    def add(self, method: str, path: str, handler: Handler, right: Right) -> None:
        """Let `handler` answer a method of `path`; HEAD as GET."""
        self._add(method, path, Route(handler, right))
        if method == "GET":
            self._add("HEAD", path, Route(handler, right))

    def _add(self, method: str, path: str, route: Route) -> None:
        methods = self._table.setdefault(path, {})
        if method in methods:
            raise ValueError(f"two handlers for {method} {path}")
        methods[method] = route

    @property
    def paths(self) -> list[str]:
        return list(self._table)

    def methods(self, path: str) -> list[str]:
        """Return the methods that a path answers, in capitals."""
        return sorted(self._table[path])

    def right(self, path: str, method: str) -> Right:
        """Return who may use a method of a path."""
        return self._table[path][method].right

    def install(self, app: App[Request, Response], prefix: str) -> None:
        """Give all routes to `app`, under `prefix` (no slash at its end)."""
        for path, methods in self._table.items():
            handlers = {
                f"on_{method.lower()}": route.handler
                for method, route in methods.items()
            }
            rights = {method: route.right for method, route in methods.items()}
            app.add_route(prefix + path, SimpleNamespace(rights=rights, **handlers))
        if prefix:
            _lead(app, prefix)


def _lead(app: App[Request, Response], prefix: str) -> None:
    """Lead from the relative root without its last slash to the overview."""

    async def lead(req: Request, resp: Response) -> None:
        resp.status = HTTP_303
        resp.set_header("Location", f"{prefix}/")

    rights = {"GET": Right(role=Role.VIEWER, shared=True)}
    app.add_route(prefix, SimpleNamespace(on_get=lead, rights=rights))
