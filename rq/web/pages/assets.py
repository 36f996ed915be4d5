"""The static files, read once: few and small, they live in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import falcon
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.web.routes import Routes

STATIC = Path(__file__).resolve().parent.parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    data: bytes
    kind: str
    etag: str


def add_routes(routes: Routes) -> None:
    """Add the files that pages load."""
    assets = Assets()
    routes.get("/static/{path:path}", assets.on_get, Role.VIEWER, shared=True)
    routes.get("/css/rq.css", assets.css, Role.VIEWER, shared=True)
    routes.get("/favicon.ico", assets.icon, Role.VIEWER, shared=True)


class Assets:
    """GET /static/... and the ancestor's few names."""

    def __init__(self) -> None:
        self._files = {
            str(path.relative_to(STATIC)): _read(path)
            for path in sorted(STATIC.rglob("*"))
            if path.suffix in TYPES
        }

    async def on_get(self, req: Request, resp: Response, path: str) -> None:
        asset = self._files.get(path)
        if asset is None:
            raise falcon.HTTPNotFound(description="There is no such file.")
        # Always asked for again, and mostly answered 304: an upgrade shows at once.
        resp.cache_control = ["no-cache"]
        resp.etag = asset.etag
        if req.if_none_match and asset.etag in [str(tag) for tag in req.if_none_match]:
            resp.status = falcon.HTTP_304
            return
        resp.content_type = asset.kind
        resp.data = asset.data

    async def css(self, req: Request, resp: Response) -> None:
        await self.on_get(req, resp, "rq.css")

    async def icon(self, req: Request, resp: Response) -> None:
        await self.on_get(req, resp, "favicon.svg")


def _read(path: Path) -> Asset:
    data = path.read_bytes()
    return Asset(data, TYPES[path.suffix], hashlib.sha256(data).hexdigest()[:20])
