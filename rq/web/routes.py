"""The route table: which function answers which method and path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from falcon import HTTP_303
from falcon.asgi import App, Request, Response

# `async def handler(req, resp, **fields_of_the_path)`.
Handler = Callable[..., Awaitable[None]]


class Routes:
    """Collects handlers, so that several rooms can share a path by method."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, Handler]] = {}

    def get(self, path: str, handler: Handler) -> None:
        """Let `handler` answer GET (and HEAD) of `path`, say `/q/{name}`."""
        self._add("get", path, handler)
        self._add("head", path, handler)

    def post(self, path: str, handler: Handler) -> None:
        """Let `handler` answer POST of `path`."""
        self._add("post", path, handler)

    def put(self, path: str, handler: Handler) -> None:
        """Let `handler` answer PUT of `path`."""
        self._add("put", path, handler)

    def _add(self, method: str, path: str, handler: Handler) -> None:
        methods = self._table.setdefault(path, {})
        if method in methods:
            raise ValueError(f"two handlers for {method} {path}")
        methods[method] = handler

    @property
    def paths(self) -> list[str]:
        return list(self._table)

    def methods(self, path: str) -> list[str]:
        """Return the methods that a path answers, in capitals."""
        return sorted(one.upper() for one in self._table[path])

    def install(self, app: App[Any, Any], prefix: str) -> None:
        """Give all routes to `app`, under `prefix` (no slash at its end)."""
        for path, methods in self._table.items():
            named = {f"on_{method}": one for method, one in methods.items()}
            app.add_route(prefix + path, SimpleNamespace(**named))
        if prefix:
            _lead(app, prefix)


def _lead(app: App[Any, Any], prefix: str) -> None:
    """Lead from the relative root without its last slash to the overview."""

    async def lead(req: Request, resp: Response) -> None:
        resp.status = HTTP_303
        resp.set_header("Location", f"{prefix}/")

    app.add_route(prefix, SimpleNamespace(on_get=lead))
