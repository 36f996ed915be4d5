"""`rq relay allow`, `forbid` and `ls hosts`: which internal hosts the relay may ask."""

from __future__ import annotations

import argparse
from typing import Any

from rq import host_back_off, transfers
from rq.cli import owner, place, term
from rq.errors import RQError
from rq.layout import Root
from rq.outbound import earlier, permits
from rq.transfers import QUEUE

VERBS = ("allow", "forbid")
_LOOKED_AT = 1000  # waiting messages that are tried at once


def add_verbs(kinds: Any) -> None:
    """Add the parsers of the verbs."""
    allow = kinds.add_parser("allow", help="let an internal host be asked")
    allow.add_argument("host", nargs="+", metavar="HOST[:PORT]")
    forbid = kinds.add_parser("forbid", help="take that back")
    forbid.add_argument("host", nargs="+", metavar="HOST[:PORT]")


def run(root: Root, args: argparse.Namespace) -> int:
    """Do one of the verbs."""
    place.root_config(root)
    if args.what == "allow":
        return _allow(root, args.host)
    if args.what == "forbid":
        return _forbid(root, args.host)
    return _ls(root, as_json=args.json)


def _allow(root: Root, hosts: list[str]) -> int:
    added = permits.allow(root, hosts)
    for host in dict.fromkeys(map(permits.spelled, hosts)):
        word = "may be asked now" if host in added else "was allowed before"
        print(term.plain(f"{host} {word}"))
        _hurry(root, host)
    return 0


def _hurry(root: Root, host: str) -> None:
    """Let messages that wait for a host be tried at once; later they are anyway."""
    queue = root.queue(QUEUE)
    if not queue.config.exists():
        return
    for left in host_back_off.ls(queue, 0.0):
        if permits.takes(host, left.name):
            host_back_off.pardon(queue, left.name)
    for one in transfers.ls(root, _LOOKED_AT):
        if transfers.command(one) != "run_message" or not permits.takes(host, one.dest):
            continue
        try:
            owner.ask(root, QUEUE, "run_message", {"msg_id": one.msg_id})
        except RQError:
            return


def _forbid(root: Root, hosts: list[str]) -> int:
    for host in hosts:
        permits.forbid(root, host)
        text = f"{permits.spelled(host)} is not allowed any more"
        print(term.plain(text))
    return 0


def _ls(root: Root, *, as_json: bool) -> int:
    found = permits.listed(root)
    if as_json:
        term.print_json(found)
    elif found:
        before = earlier.entered(root)
        rows = [(one["host"], one["url"] or _by(one["host"], before)) for one in found]
        term.table(("HOST", "LET BY"), rows)
    else:
        place.note("no internal host may be asked: `rq relay allow HOST[:PORT]`")
    return 0


def _by(host: str, before: list[str]) -> str:
    return "the history, at the update" if host in before else "rq relay allow"
