"""`rq broker leave` and `forget`: how a node goes, and nothing with it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from rq.broker_client import questions
from rq.broker_client.rows import HeldRow, NodeRow
from rq.cli import FAILED, INTERRUPTED, OK, place, term
from rq.errors import BadInput, Refused
from rq.layout import Root

_SPREAD = 1.0  # seconds until all nodes know that one leaves, and it who else does
_STEP = 0.5  # seconds between two looks; many jobs take longer
_SHARE = 5  # of the time that a look takes the broker, until the next one
_NAMED = 5  # queues that are named
_FORCED = ("fail", "fail?", "leaving")


def options(leave: argparse.ArgumentParser, forget: argparse.ArgumentParser) -> None:
    """Add what the verbs take."""
    leave.add_argument("--cancel", action="store_true", help="let this node stay")
    leave.add_argument(
        "--no-wait",
        action="store_true",
        help="say what is left, and end; exit status 1 while it may not go",
    )
    term.json_option(leave)
    forget.add_argument(
        "node", metavar="NODE", help="its id, the beginning of that, or its address"
    )
    forget.add_argument(
        "--yes", action="store_true", help="also one that answers and does not leave"
    )


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
        place.note(
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
            place.note(f"{text}; {_clients(root)}")
        if once:
            _advise(rows)
            return FAILED
        took = time.monotonic() - began
        time.sleep(max(_STEP, _SHARE * took))


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
        place.note(
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
        place.note(
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
