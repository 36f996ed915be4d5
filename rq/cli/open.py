"""`rq open`: an address that signs its reader in, once; made by RQ's own user."""

from __future__ import annotations

import os
import time
import webbrowser

from rq.access import kernel, one_time_keys
from rq.cli import FAILED, OK, audit, place, term
from rq.config.values import is_loopback
from rq.errors import Refused
from rq.layout import Root


def open_(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "open",
        "Print an address of the web that signs you in. It works once, within a minute.",
    )
    parser.add_argument(
        "--browser", action="store_true", help="open it in a browser, too"
    )
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
        place.note("no browser could be started: open the address yourself")
        return FAILED
    return OK


def signing_address(root: Root, uid: int | None = None) -> str:
    """Return the address of the page with a new key in it, for `uid` alone if given."""
    page = place.root_config(root).page_url
    key = one_time_keys.make(root, audit.user(), time.time(), uid)
    audit.note(root, "open")
    return f"{page}login?once={key}"
