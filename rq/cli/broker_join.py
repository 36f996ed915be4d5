"""`rq broker join`, `leave` and `forget`: how a node comes into a cluster, and goes."""

from __future__ import annotations

import argparse
import dataclasses
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rq import names
from rq.cli import (
    FAILED,
    INTERRUPTED,
    OK,
    broker_cluster,
    broker_switch,
    broker_views,
    place,
    term,
)
from rq.cli.named_files import Files
from rq.config import broker as config
from rq.config.broker import BUS_ABOVE, BrokerConfig
from rq.config.values import is_loopback
from rq.errors import BadInput, Refused, RQError, Unreachable
from rq.layout import Root
from rq.rpc.broker import questions
from rq.rpc.broker.questions import ask
from rq.rpc.broker.rows import HeldRow, NodeRow

_LAST_PORT = 65_535
_STEP = 0.1  # seconds between two looks
_MEETING = 12.0  # seconds until the other node has to know this one
_FAILING = 2.0  # seconds of tries that fail: it may just start
_OTHERS = 10.0  # seconds until links stand to those that it knows
_CALM = 2.0  # seconds without a new node: gossip has told of all
_SPREAD = 1.0  # seconds until all nodes know that one leaves, and it who else does
_LOOK = 0.5  # seconds between two looks; many jobs take longer
_SHARE = 5  # of the time that a look takes the broker, until the next one
_NAMED = 5  # queues that are named
_FORCED = ("fail", "fail?", "leaving")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is to be met."""

    typed: str  # HOST:PORT, as a person has said it
    host: str  # an IP address
    port: int  # for nodes


def options(into: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    into.add_argument(
        "node", metavar="HOST[:PORT]", help="a node of it, and its port for nodes"
    )
    into.add_argument(
        "--secret",
        metavar="FILE",
        help="a copy of config/broker.secret of that node, which is kept here; "
        f"{broker_cluster.STDIN}: from standard input",
    )


def named(args: argparse.Namespace) -> list[str]:
    """Return the files that the words name."""
    given = getattr(args, "secret", None)
    return [] if given in (None, broker_cluster.STDIN) else [given]


def join(root: Root, args: argparse.Namespace, named_files: Files) -> int:
    """Let the broker run as a node, and meet the other one; a second time changes
    nothing. What cannot be is raised, in one sentence."""
    place.demand_running(root)
    node = _place(args.node)
    now = config.read(root.broker_config)
    secret = broker_cluster.secret_of(root, now)
    wanted = _wanted(root, now, args, node, named_files)
    is_same = wanted == now and secret == broker_cluster.secret_of(root, wanted)
    if not (is_same and broker_switch.is_up(root)):
        broker_switch.keep(root, wanted)
        broker_switch.start(root)
    ask(root, "CLUSTER", "LEAVING", "no")
    _meet(root, node, broker_cluster.bus_port(wanted))
    return broker_views.list_nodes(root, as_json=args.json)


# ---- where


def _place(text: str) -> Place:
    """Return where HOST[:PORT] is; BadInput: nowhere."""
    host, port = _parts(text)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        raise BadInput(f"{text:.200} is no HOST:PORT of a node")
    try:
        infos = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a host"
        raise BadInput(f"{host:.200} is not known here: {why}") from None
    return Place(names.host_port(host, int(port)), str(infos[0][4][0]), int(port))


def _parts(text: str) -> tuple[str, str]:
    """Return host and port of a text.

    >>> _parts("alpha"), _parts("alpha:17"), _parts("[::1]:17"), _parts("fe80::1")
    (('alpha', '17711'), ('alpha', '17'), ('::1', '17'), ('fe80::1', '17711'))
    """
    head, colon, tail = text.rpartition(":")
    if not colon or (":" in head and not head.endswith("]")):
        return text.strip("[]"), str(config.PORT + BUS_ABOVE)
    return head.strip("[]"), tail


def _wanted(
    root: Root,
    now: BrokerConfig,
    args: argparse.Namespace,
    node: Place,
    named_files: Files,
) -> BrokerConfig:
    """Return the settings of a node that `node` can reach."""
    is_new = ":" in node.host  # IPv6
    near, everywhere = ("::1", "::") if is_new else ("127.0.0.1", "0.0.0.0")
    addr = near if is_loopback(node.host) else everywhere
    wanted = broker_cluster.listening(now, args, addr)
    port = args.port or wanted.port
    wanted = dataclasses.replace(wanted, enabled=True, port=port)
    config.check_door(wanted)
    _check_reachable(wanted, node)
    return broker_cluster.with_secret_of(root, wanted, args, named_files)


def _check_reachable(wanted: BrokerConfig, node: Place) -> None:
    own_port = broker_cluster.bus_port(wanted)
    if (_source(node), own_port) == (node.host, node.port):
        raise BadInput(f"{node.typed} is this node itself: name another one")
    addr = wanted.bus_addr or wanted.addr
    if is_loopback(addr) and not is_loopback(node.host):
        raise BadInput(
            f"other nodes would come in at {addr}, which only this host reaches: name "
            "another address with --bus-addr"
        )


def _source(node: Place) -> str:
    """Return the address with which this host goes to a node; "": it cannot be told."""
    family = socket.AF_INET6 if ":" in node.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((node.host, node.port))  # nothing is sent
        except OSError:
            return ""
        return str(sock.getsockname()[0])


# ---- meeting


def _meet(root: Root, node: Place, own_port: int) -> None:
    """Let the two know each other, and wait until links to all stand. Unreachable: they
    cannot, and this node knows no others than before."""
    client_port = max(1, node.port - BUS_ABOVE)  # it says the right one
    before = {row.id for row in questions.nodes(root)}
    ask(root, "CLUSTER", "MEET", node.host, str(client_port), str(node.port))
    term.note(f"meets {node.typed}")
    try:
        met = _until_met(root, node, own_port)
    except Unreachable:
        for row in questions.nodes(root):
            if row.id not in before:  # the node has told of it
                ask(root, "CLUSTER", "FORGET", row.id)
        raise
    if met is not None:
        term.note(f"node {met.id[:8]} is there, and knows this one")
    _until_calm(root)


def _until_met(root: Root, node: Place, own_port: int) -> NodeRow | None:
    """Return the node's row once both links stand; None: it has another address, too, by
    which it was known. Unreachable: it cannot be, and why."""
    end, failing_since = time.monotonic() + _MEETING, None
    while True:
        row = _row_of(root, node)
        if row is None or (row.linked_back and row.linked and not _is_new(row)):
            return row
        now = time.monotonic()
        failing_since = (failing_since or now) if row.why else None
        if now > end or (failing_since and now - failing_since > _FAILING):
            raise _failure(row, node, own_port)
        time.sleep(_STEP)


def _is_new(row: NodeRow) -> bool:
    return "handshake" in row.flags


def _row_of(root: Root, node: Place) -> NodeRow | None:
    where = names.host_port(node.host, node.port)
    others = [row for row in questions.nodes(root) if "myself" not in row.flags]
    row = next((row for row in others if row.bus == where), None)
    if row is None and not any(each.linked for each in others):
        raise Unreachable(f"{node.typed} is this node itself, or is gone again")
    return row


def _failure(row: NodeRow, node: Place, own_port: int) -> RQError:
    if not row.linked:
        why = row.why or "it does not answer"
        return Unreachable(f"no node at {node.typed}: {why}")
    here = names.host_port(_source(node), own_port)
    return Unreachable(
        f"{node.typed} answers, and does not reach this node at {here}: open that port, "
        "or name an address that it reaches with --bus-addr"
    )


def _until_calm(root: Root) -> None:
    """Wait until all links stand and no further node is told of; name those that do not
    answer."""
    end = time.monotonic() + _OTHERS
    since, number, away = time.monotonic(), 0, list[NodeRow]()
    while time.monotonic() < end:
        rows = questions.nodes(root)[1:]
        away = [row for row in rows if not (row.linked and row.linked_back)]
        if away or len(rows) != number:
            since, number = time.monotonic(), len(rows)
        elif time.monotonic() - since > _CALM:
            break
        time.sleep(_STEP)
    for row in away:
        term.note(f"{row.address} is known, and has no link yet: `rq broker nodes`")


# ---- leaving, and forgetting


def leaving_options(
    leave: argparse.ArgumentParser, forget: argparse.ArgumentParser
) -> None:
    """Add what the verbs take."""
    term.flag(leave, "--cancel", "let this node stay")
    term.flag(
        leave,
        "--no-wait",
        "say what is left, and end; exit status 1 while it may not go",
    )
    term.json_option(leave)
    forget.add_argument(
        "node", metavar="NODE", help="its id, the beginning of that, or its address"
    )
    term.flag(forget, "--yes", "also one that answers and does not leave")


# ---- leaving


def leave(root: Root, args: argparse.Namespace) -> int:
    """Let this node take no new jobs, and wait until what only it has is done."""
    mine, *others = questions.nodes(root)
    if args.cancel:
        questions.leave(root, False)
        print("this node stays, and takes jobs")
        return OK
    if not others:
        raise Refused(
            "this node is alone, and has no cluster to leave: `rq broker disable` stops it"
        )
    questions.leave(root, True)
    if "leaving" not in mine.flags:
        time.sleep(_SPREAD)  # two that leave must not count on each other
    if args.json:
        return _as_json(root)
    try:
        return _wait(root, mine, args.no_wait)
    except KeyboardInterrupt:
        term.note(
            "\nthis node goes on leaving: `rq broker leave` looks again, and with "
            "--cancel it stays"
        )
        return INTERRUPTED


def _as_json(root: Root) -> int:
    whole, rows = questions.held(root)
    may_go = _may_go(whole)
    queues = [row.to_json() for row in rows]
    term.print_json({"may_go": may_go, "all": whole.to_json(), "queues": queues})
    return OK if may_go else FAILED


def _wait(root: Root, mine: NodeRow, once: bool) -> int:
    said = ""
    while True:
        began = time.monotonic()
        whole, rows = questions.held(root)
        if _may_go(whole):
            _tell_end(whole, mine)
            return OK
        text = _sentence(whole, rows)
        if text != said:
            said = text
            term.note(f"{text}; {_clients(root)}")
        if once:
            _advise(rows)
            return FAILED
        took = time.monotonic() - began
        time.sleep(max(_LOOK, _SHARE * took))


def _may_go(whole: HeldRow) -> bool:
    return not whole.here and not whole.acked


def _sentence(whole: HeldRow, rows: Sequence[HeldRow]) -> str:
    """Return what keeps a node from going."""
    named = [f"{term.plain(row.name):.60} {_of_queue(row)}" for row in rows if row.here]
    more = ["…"] if len(named) > _NAMED else []
    parts = [f"{term.number(whole.here, 'job')} only here"] if whole.here else []
    if named:
        parts[0] += f" ({', '.join([*named[:_NAMED], *more])})"
    if whole.acked:
        parts.append(
            f"{term.number(whole.acked, 'acknowledgement')} not yet told to all"
        )
    return f"leaving: {', '.join(parts)}"


def _of_queue(row: HeldRow) -> str:
    out = row.here - row.waits
    counts = [f"{row.waits} waiting" if row.waits else "", f"{out} out" if out else ""]
    return " and ".join(filter(None, counts))


def _clients(root: Root) -> str:
    return f"{term.number(len(questions.clients(root)), 'client')} connected"


def _advise(rows: Sequence[HeldRow]) -> None:
    if rows and rows[0].here:
        term.note(
            "programs that wait at other nodes get these jobs, and this one hands them "
            "out, too; what nobody fetches keeps it from going"
        )


def _tell_end(whole: HeldRow, mine: NodeRow) -> None:
    if whole.copied:
        jobs = term.number(whole.copied, "job")
        print(f"of {jobs} others keep copies, which come there if need be")
    print("this node may go: nothing is only here")
    print(
        f"on another node: rq broker forget {mine.id[:8]}; then here: rq broker disable"
    )


# ---- forgetting


def forget(root: Root, args: argparse.Namespace) -> int:
    """Let all nodes that answer forget one; FAILED when some did not."""
    row = _row_called(questions.nodes(root), args.node)
    if row.linked and not set(row.flags) & set(_FORCED) and not args.yes:
        question = (
            f"{row.address} answers and does not leave: what only it has is lost to the "
            "others. Forget it?"
        )
        if not term.confirm(question, yes=False):
            return FAILED
    left = [each for each in questions.forget(root, row.id) if not each.is_done]
    print(f"node {row.id[:8]} ({row.address}) is forgotten")
    for each in left:
        term.note(
            f"{each.address} has not heard of it, and brings it back to the others: say "
            f"`rq broker forget {row.id}` again when it answers"
        )
    return FAILED if left else OK


def _row_called(rows: Sequence[NodeRow], text: str) -> NodeRow:
    """Return the node that is meant; BadInput: none is, or several, or this one."""
    mine, *others = rows
    whole = [row for row in others if text in (row.id, row.address, row.bus)]
    begun = [row for row in others if row.id.startswith(text) and text]
    hosts = [row for row in others if row.address.rpartition(":")[0] == text]
    rows_meant = whole or begun or hosts
    if len(rows_meant) == 1:
        return rows_meant[0]
    if mine.id.startswith(text) or text in (mine.address, mine.bus):
        raise BadInput("this is the node itself: say it on another one")
    how = "several nodes are" if rows_meant else "no node is"
    raise BadInput(f"{how} called {text:.60}: `rq broker nodes` lists them")
