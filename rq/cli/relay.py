"""`rq relay`: what is being handed over to other hosts, and what a person says of it."""

from __future__ import annotations

import argparse

from rq import host_back_off, transfers
from rq.cli import owner, place, relay_hosts, term
from rq.layout import Root
from rq.transfers import QUEUE, Transfer


def relay(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.what in relay_hosts.VERBS or getattr(args, "of", None):
        return relay_hosts.run(root, args)
    place.queue_dir(root, QUEUE)
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    if args.what == "retry":
        return _retry(root, args.id, everything=args.all)
    return _resolve(root, args.id, arrived=args.arrived)


def _parser() -> argparse.ArgumentParser:
    made = term.parser("relay", "Messages on their way to other hosts.")
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list what was tried and has not ended")
    listing.add_argument(
        "of", nargs="?", choices=["hosts"], help="the internal hosts that may be asked"
    )
    term.json_option(listing)
    relay_hosts.add_verbs(kinds)
    retry = kinds.add_parser("retry", help="try again now, whoever is left alone")
    retry.add_argument("id", nargs="*", metavar="ID")
    retry.add_argument("--all", action="store_true", help="all but those in doubt")
    resolve = kinds.add_parser(
        "resolve", help="say whether a message in doubt has arrived there"
    )
    resolve.add_argument("id", metavar="ID")
    how = resolve.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--arrived", action="store_true", help="it has: acknowledge the error"
    )
    how.add_argument(
        "--again", action="store_true", help="it has not: send it as a new one"
    )
    return made


def _ls(root: Root, *, as_json: bool) -> int:
    found = transfers.ls(root)
    if as_json:
        term.print_json([one.to_json() for one in found])
    elif found:
        heads = ("ID", "STATE", "PEER", "STEP", "ANSWER")
        term.table(heads, [_row(one) for one in found])
    else:
        place.note("nothing is on its way to another host, or it was not yet tried")
    return 0


def _row(one: Transfer) -> tuple[str, ...]:
    state = "in doubt" if one.in_doubt else one.state
    return one.msg_id, state, one.peer, one.step, one.answer[:200]


def _retry(root: Root, ids: list[str], *, everything: bool) -> int:
    wanted = [transfers.find(root, one) for one in ids]
    if everything:
        wanted += [one for one in transfers.ls(root) if not one.in_doubt]
    if not wanted:
        place.note("nothing to try: say ID … or --all")
    for one in wanted:
        host_back_off.pardon(root.queue(QUEUE), one.peer)
        _go(root, one)
    return 0


def _go(root: Root, one: Transfer) -> None:
    command = transfers.command(one)
    if command is None:
        place.note(f"{one.msg_id} is being handed over right now")
        return
    owner.demand(root, QUEUE, command, {"msg_id": one.msg_id, "who": "rq relay"})
    print(f"{one.msg_id} is tried again")


def _resolve(root: Root, text: str, *, arrived: bool) -> int:
    one = transfers.find(root, text)
    if arrived:
        owner.demand(root, QUEUE, "ack_errs", {"msg_id": one.msg_id})
        print(f"{one.msg_id} is acknowledged")
        return 0
    transfers.send_again(root, one)
    host_back_off.pardon(root.queue(QUEUE), one.peer)
    _go(root, one)
    return 0
