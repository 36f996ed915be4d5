"""Signing in and out: the form, the address that `rq open` prints, the cookie.

The page needs nothing else of this server, for its reader has no right to it yet.
"""

from __future__ import annotations

import base64
import hashlib
import time
from pathlib import Path

import falcon
from falcon.asgi import Request, Response
from markupsafe import Markup

from rq.access import one_time_keys, tokens
from rq.access.audit import PERIOD, Groups
from rq.access.roles import Role
from rq.access.sessions import LONGEST, How
from rq.errors import NotKnown, TooOften
from rq.web import forms
from rq.web.answers import local_path
from rq.web.credentials import WRONG_TOKEN, Credentials
from rq.web.forms import Form
from rq.web.origin import asker_of, check_origin
from rq.web.pages import page
from rq.web.routes import Routes
from rq.web.site import Site

LOGIN, LOGOUT = "/login", "/logout"
PATHS = (LOGIN, LOGOUT)
_MOST_A_MINUTE = 60  # sign-ins of one name
_MOST_BYTES = 16 * 1024  # of the form
_LOOK = (Path(__file__).parent / "static" / "login.css").read_text()
_HASH = base64.b64encode(hashlib.sha256(_LOOK.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SIGNED_OUT = "You have signed out."
OLD_KEY = "This address was used before, or is older than a minute: `rq open` prints a new one."


def add_routes(routes: Routes, site: Site, credentials: Credentials) -> None:
    """Add the routes of signing in and out; the guard lets everybody ask them."""
    signin = SignIn(site, credentials)
    routes.get(LOGIN, signin.show, Role.VIEWER, shared=True)
    routes.post(LOGIN, signin.enter, Role.VIEWER, shared=True)
    routes.post(LOGOUT, signin.leave, Role.VIEWER, shared=True)


class SignIn:
    """GET and POST /login, POST /logout."""

    def __init__(self, site: Site, credentials: Credentials) -> None:
        self._site = site
        self._credentials = credentials
        self._begun = Groups(_MOST_A_MINUTE)

    async def show(self, req: Request, resp: Response) -> None:
        key = req.get_param("once")
        if key and req.method == "GET":  # HEAD only looks, and uses no key
            self._enter_once(req, resp, key)
            return
        said = SIGNED_OUT if req.get_param("out") == "1" else ""
        answer(self._site, req, resp, said)

    def _enter_once(self, req: Request, resp: Response, key: str) -> None:
        check_origin(req)
        who = one_time_keys.take(self._site.root, key, time.time(), asker_of(req).user)
        if who is None:
            raise NotKnown(OLD_KEY)
        self._begin(req, resp, who, How.ONCE, "")

    async def enter(self, req: Request, resp: Response) -> None:
        # Anybody may send this, so little of it is read.
        if req.content_length is None:
            raise falcon.HTTPLengthRequired(
                description="The form needs its Content-Length."
            )
        if req.content_length > _MOST_BYTES:
            raise falcon.HTTPContentTooLarge(
                description=f"A form that signs in has at most {_MOST_BYTES} bytes."
            )
        form = await forms.read(req)
        try:
            who, how, proof = await self._proof(req, form)
        except (NotKnown, TooOften) as error:
            req.context.next = self._next(form)
            raise error
        req.context.next = self._next(form)
        self._begin(req, resp, who, how, proof)

    async def _proof(self, req: Request, form: Form) -> tuple[str, How, str]:
        """Return who signs in, how, and what the session stands on."""
        secret = form.get("token").strip()
        if secret:
            digest = tokens.digest_of(secret)
            token = self._credentials.tokens.by_digest(digest, time.time())
            if token is None:
                raise NotKnown(WRONG_TOKEN)
            return token.principal.name, How.TOKEN, digest
        user = await self._credentials.by_password(
            req, form.get("name"), form.get("password")
        )
        return user.name, How.PASSWORD, user.proof

    def _check_pace(self, who: str) -> None:
        """Raise TooOften for a name that signs in too often: each sign-in is a line of the
        audit log, which must not be filled with them."""
        now = time.time()
        self._begun.over(now)
        if not self._begun.count(who, now):
            raise TooOften(
                f"{who} has signed in {_MOST_A_MINUTE} times within a minute: wait a minute.",
                PERIOD,
            )

    def _begin(
        self, req: Request, resp: Response, who: str, how: How, proof: str
    ) -> None:
        """Begin a session under a new cookie, end the one before, and go on."""
        self._check_pace(who)
        sessions = self._credentials.sessions
        for before in self._credentials.shown_cookies(req):
            sessions.end(before)
        uid = asker_of(req).user
        cookie = sessions.begin(who, how, proof, time.time(), uid)
        req.context.deed = f"signed in by {how}", who
        resp.set_cookie(
            self._credentials.cookie,
            cookie,
            path=self._path,
            max_age=int(LONGEST),
            http_only=True,
            secure=req.forwarded_scheme == "https",
            same_site="Lax",
        )
        resp.cache_control = ["no-store"]
        resp.status = falcon.HTTP_303
        address = getattr(req.context, "next", "") or self._site.url("/")
        resp.set_header("Location", address)

    async def leave(self, req: Request, resp: Response) -> None:
        for cookie in self._credentials.shown_cookies(req):
            if who := self._credentials.sessions.end(cookie):
                req.context.deed = "signed out", who
        resp.unset_cookie(self._credentials.cookie, path=self._path, same_site="Lax")
        resp.cache_control = ["no-store"]
        resp.status = falcon.HTTP_303
        resp.set_header("Location", self._site.url(f"{LOGIN}?out=1"))

    @property
    def _path(self) -> str:
        """Return where the cookie is sent: the relative root, with its slash or not."""
        return self._site.prefix or "/"

    def _next(self, form: Form) -> str:
        """Return where to go then: a page of this site, and no way out of it."""
        wanted = form.get("next")
        below = wanted.startswith(self._site.url("/"))
        is_signing = wanted.partition("?")[0] in map(self._site.url, PATHS)
        return wanted if local_path(wanted) and below and not is_signing else ""


def answer(site: Site, req: Request, resp: Response, said: str) -> None:
    """Answer with the form; `said` is why, or what was done."""
    resp.content_type = falcon.MEDIA_HTML
    resp.cache_control = ["no-store"]
    resp.set_header("Content-Security-Policy", POLICY)
    theme = req.cookies.get("rq_theme", "")
    resp.text = site.render(
        "login.html",
        look=Markup(_LOOK),
        theme=theme if theme in page.THEMES else "",
        has_users=bool(site.config.basic_auth),
        said=said,
        next=_after(site, req),
    )


def was_tried(req: Request) -> bool:
    """Return whether a request tried to sign in."""
    return bool(req.path.endswith(LOGIN) or req.get_header("Authorization"))


def _after(site: Site, req: Request) -> str:
    """Return the page that was asked for."""
    if kept := getattr(req.context, "next", ""):
        return str(kept)
    is_signing = req.path in map(site.url, PATHS)
    return page.back(req) if req.method == "GET" and not is_signing else site.url("/")
