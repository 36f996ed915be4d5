"""`rq relay`: messages on their way to other hosts; a person tries or resolves them."""

from __future__ import annotations

import argparse

from rq.cli import owner, place, term
from rq.errors import RQError
from rq.layout import Root
from rq.message.actions import ACTIONS, Word
from rq.outbound import past_hosts, permits
from rq.relay import host_back_off, transfers
from rq.relay.transfers import QUEUE, Transfer

_OF_HOSTS = ("allow", "forbid")
_LOOKED_AT = 1000  # waiting messages that are tried at once


def relay(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.what in _OF_HOSTS or getattr(args, "of", None):
        return _of_hosts(root, args)
    place.queue_dir(root, QUEUE)
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    if args.what == "retry":
        return _retry(root, args.id, everything=args.all)
    return _resolve(root, args.id, arrived=args.arrived)


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "relay", "Messages on their way to other hosts, and the hosts they may go to."
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser(
        "ls", help="list messages that were tried and are not yet delivered"
    )
    listing.add_argument(
        "of",
        nargs="?",
        choices=["hosts"],
        help="list instead the internal hosts that messages may be sent to",
    )
    term.json_option(listing)
    _add_host_verbs(kinds)
    retry = kinds.add_parser(
        "retry", help="try messages again now, without waiting for the next try"
    )
    retry.add_argument("id", nargs="*", metavar="ID")
    term.flag(retry, "--all", "all messages but those in doubt")
    resolve = kinds.add_parser(
        "resolve", help="say whether a message in doubt has arrived"
    )
    resolve.add_argument("id", metavar="ID")
    how = resolve.add_mutually_exclusive_group(required=True)
    term.flag(how, "--arrived", "it has arrived: acknowledge the error")
    term.flag(how, "--again", "it has not arrived: send it anew")
    return parser


def _ls(root: Root, *, as_json: bool) -> int:
    listed = transfers.ls(root)
    term.listed(
        ("ID", "STATE", "PEER", "STEP", "ANSWER"),
        [_row(transfer) for transfer in listed],
        "no message is on its way to another host, or none was tried yet",
        [transfer.to_json() for transfer in listed] if as_json else None,
    )
    return 0


def _row(transfer: Transfer) -> tuple[str, ...]:
    state = "in doubt" if transfer.in_doubt else transfer.state
    answer = transfer.answer[:200]
    return transfer.msg_id, state, transfer.peer, transfer.step, answer


def _retry(root: Root, ids: list[str], *, everything: bool) -> int:
    chosen = [transfers.find(root, text) for text in ids]
    if everything:
        chosen += [entry for entry in transfers.ls(root) if not entry.in_doubt]
    if not chosen:
        term.note("nothing to try: name messages, or say --all")
    for transfer in chosen:
        host_back_off.pardon(root.queue(QUEUE), transfer.peer)
        _try_now(root, transfer)
    return 0


def _try_now(root: Root, transfer: Transfer) -> None:
    command = transfers.command(transfer)
    if command is None:
        term.note(f"{transfer.msg_id} is being sent right now")
        return
    request = {"msg_id": transfer.msg_id, "who": "rq relay"}
    owner.demand(root, QUEUE, command, request)
    print(f"{transfer.msg_id} is tried again now")


def _resolve(root: Root, text: str, *, arrived: bool) -> int:
    transfer = transfers.find(root, text)
    if arrived:
        ack = ACTIONS[Word.ACK]
        owner.demand(root, QUEUE, ack.command, {"msg_id": transfer.msg_id})
        print(f"{transfer.msg_id} {ack.done}")
        return 0
    transfers.send_again(root, transfer)
    host_back_off.pardon(root.queue(QUEUE), transfer.peer)
    _try_now(root, transfer)
    return 0


# ---- the hosts that messages may go to


def _add_host_verbs(kinds: term.Verbs) -> None:
    """Add the parsers of the verbs."""
    allow = kinds.add_parser("allow", help="let messages be sent to an internal host")
    allow.add_argument("host", nargs="+", metavar="HOST[:PORT]")
    term.flag(allow, "--webhooks", "let webhooks be posted there, and no messages")
    forbid = kinds.add_parser("forbid", help="take an allowance back")
    forbid.add_argument("host", nargs="+", metavar="HOST[:PORT]")


def _of_hosts(root: Root, args: argparse.Namespace) -> int:
    """Do one of the verbs."""
    place.root_config(root)
    if args.what == "allow" and args.webhooks:
        return _allow_webhooks(root, args.host)
    if args.what == "allow":
        return _allow(root, args.host)
    if args.what == "forbid":
        return _forbid(root, args.host)
    return _ls_hosts(root, as_json=args.json)


def _allow_webhooks(root: Root, hosts: list[str]) -> int:
    added = permits.allow_webhooks(root, hosts)
    for host in dict.fromkeys(map(permits.spelled, hosts)):
        word = "may be told now" if host in added else "might be told already"
        print(term.plain(f"{host} {word} by webhooks"))
    return 0


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


def _ls_hosts(root: Root, *, as_json: bool) -> int:
    permitted = permits.listed(root)
    before = past_hosts.entered(root)
    term.listed(
        ("HOST", "ALLOWED BY"),
        [(row["host"], row["url"] or _by(row["host"], before)) for row in permitted],
        "no internal host is allowed: `rq relay allow HOST[:PORT]` allows one",
        permitted if as_json else None,
    )
    return 0


def _by(host: str, before: list[str]) -> str:
    return (
        "the update: messages were sent there before"
        if host in before
        else "rq relay allow"
    )
