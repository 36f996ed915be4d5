"""`rq relay allow`, `forbid` and `ls hosts`: to which internal hosts the relay may send."""

from __future__ import annotations

import argparse

from rq import host_back_off, transfers
from rq.cli import owner, place, term
from rq.errors import RQError
from rq.layout import Root
from rq.outbound import past_hosts, permits
from rq.transfers import QUEUE

VERBS = ("allow", "forbid")
_LOOKED_AT = 1000  # waiting messages that are tried at once


def add_verbs(kinds: term.Verbs) -> None:
    """Add the parsers of the verbs."""
    allow = kinds.add_parser("allow", help="let messages be sent to an internal host")
    allow.add_argument("host", nargs="+", metavar="HOST[:PORT]")
    forbid = kinds.add_parser("forbid", help="take an allowance back")
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
        word = "is allowed now" if host in added else "was allowed already"
        print(term.plain(f"{host} {word}"))
        _hurry(root, host)
    return 0


def _hurry(root: Root, host: str) -> None:
    """Let messages that wait for a host be tried at once; later they are anyway."""
    queue = root.queue(QUEUE)
    if not queue.config.exists():
        return
    for entry in host_back_off.ls(queue, 0.0):
        if permits.takes(host, entry.name):
            host_back_off.pardon(queue, entry.name)
    for transfer in transfers.ls(root, _LOOKED_AT):
        waits = transfers.command(transfer) == "run_message"
        if not waits or not permits.takes(host, transfer.dest):
            continue
        try:
            owner.ask(root, QUEUE, "run_message", {"msg_id": transfer.msg_id})
        except RQError:
            return


def _forbid(root: Root, hosts: list[str]) -> int:
    for host in hosts:
        permits.forbid(root, host)
        text = f"{permits.spelled(host)} is not allowed any more"
        print(term.plain(text))
    return 0


def _ls(root: Root, *, as_json: bool) -> int:
    permitted = permits.listed(root)
    if as_json:
        term.print_json(permitted)
    elif permitted:
        before = past_hosts.entered(root)
        rows = [
            (entry["host"], entry["url"] or _by(entry["host"], before))
            for entry in permitted
        ]
        term.table(("HOST", "ALLOWED BY"), rows)
    else:
        place.note(
            "no internal host is allowed: `rq relay allow HOST[:PORT]` allows one"
        )
    return 0


def _by(host: str, before: list[str]) -> str:
    return (
        "the update: messages were sent there before"
        if host in before
        else "rq relay allow"
    )
