"""`rq open`: an address that signs its reader in, once; made by RQ's own user."""

from __future__ import annotations

import os
import time
import webbrowser

from rq.access import kernel, one_time_keys
from rq.cli import FAILED, OK, place, readiness, term, token
from rq.config.values import is_loopback
from rq.errors import Refused
from rq.layout import Root
from rq.replies import health
from rq.words.states import Child


def open_(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "open",
        "Print an address of the web that signs you in. It works once, within a minute.",
    )
    term.flag(parser, "--browser", "open it in a browser, too")
    args = parser.parse_args(words)
    place.demand_running(root)
    if args.browser:
        return _open_browser(root)
    print(signing_address(root))
    return OK


def _open_browser(root: Root) -> int:
    """Give a browser an address that is of use to its own user alone: the words that it
    is started with are there for all users of the machine to read."""
    settings = place.root_config(root)
    if not is_loopback(settings.addr) or kernel.in_container():
        raise Refused(
            "a browser is started with an address that all users of this machine can "
            "see, and here RQ cannot tell who asks: open what `rq open` prints"
        )
    address = signing_address(root, os.getuid())
    print(address)
    if not webbrowser.open(address):
        term.note("no browser could be started: open the address yourself")
        return FAILED
    return OK


def signing_address(root: Root, uid: int | None = None) -> str:
    """Return the address of the page with a new key in it, for `uid` alone if given.
    Refused: the web is not up, so that another program may listen at its port."""
    children = health.children(place.supervisor_status(root))
    web = next((child for child in children if child["kind"] == readiness.WEB), None)
    if web is None or web["state"] != Child.UP:
        why = (
            "it is off" if web is None else web.get("reason") or f"it is {web['state']}"
        )
        raise Refused(f"the web does not serve now ({why}): `rq status` says more")
    page = place.root_config(root).page_url
    key = one_time_keys.make(root, token.own_user(), time.time(), uid)
    token.note_in_audit(root, "open")
    return f"{page}login?once={key}"
