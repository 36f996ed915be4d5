"""The session cookie: what is said once on the next page, signed, nothing else.

Its value is JSON in base64 and an HMAC with the installation's own secret, so no client
can forge one, and no class is ever made of what it holds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets

import orjson
from falcon.asgi import Request, Response

from rq.config import files
from rq.layout import Root
from rq.proc import locks
from rq.web.site import Site

COOKIE = "rq_session"
_LIMIT = 1500  # bytes of text, so that the cookie stays below 4 KiB
_BYTES = 32


class Flashes:
    """Falcon's middleware: gives pages what is to be said, and forgets what was."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def process_request(self, req: Request, resp: Response) -> None:
        req.context.flashes = []
        if req.get_header("Cookie"):
            req.context.flashes = _flashes(self._site, req.cookies.get(COOKIE, ""))

    async def process_response(
        self, req: Request, resp: Response, resource: object, succeeded: bool
    ) -> None:
        is_page = (resp.content_type or "").startswith("text/html")
        if is_page and getattr(req.context, "flashes", None):
            path = self._site.config.relative_root
            resp.unset_cookie(COOKIE, path=path, same_site="Lax")


def flash(site: Site, resp: Response, kind: str, text: str) -> None:
    """Let the next page say `text`."""
    cut = text.encode()[:_LIMIT].decode("utf-8", "ignore")
    data = base64.urlsafe_b64encode(orjson.dumps([kind, cut]))
    value = f"{data.decode()}.{_signature(site, data).decode()}"
    path = site.config.relative_root
    resp.set_cookie(
        COOKIE,
        value,
        path=path,
        http_only=True,
        secure=bool(site.config.tls),
        same_site="Lax",
    )


def _flashes(site: Site, value: str) -> list[tuple[str, str]]:
    data, _, signature = value.partition(".")
    if not hmac.compare_digest(_signature(site, data.encode()), signature.encode()):
        return []
    try:
        kind, text = orjson.loads(base64.urlsafe_b64decode(data))
    except (ValueError, TypeError):
        return []
    return [("error" if kind == "error" else "notice", str(text))]


def _signature(site: Site, data: bytes) -> bytes:
    return hmac.new(site.secret, data, hashlib.sha256).hexdigest().encode()


# ---- the secret of an installation's web, which signs its cookies


def secret_of(root: Root) -> bytes:
    """Return the secret; made when there is none. All web processes have the same one,
    also those that start at the same moment."""
    if (secret := _read_secret(root)) is not None:
        return secret
    turn = locks.lock_waiting(root.config_dir / "web.secret.lock")
    try:
        if (secret := _read_secret(root)) is None:
            text = secrets.token_hex(_BYTES)
            files.write_secret(root.web_secret, text)
            secret = text.encode()
        return secret
    finally:
        os.close(turn)


def _read_secret(root: Root) -> bytes | None:
    try:
        secret = root.web_secret.read_bytes()
    except FileNotFoundError:
        return None
    return secret if len(secret) >= _BYTES else None
