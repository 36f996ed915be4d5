"""`rq ls`: messages in a table."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from rq.cli import owner, place, term
from rq.cli.owner import Reader
from rq.errors import BadInput
from rq.layout import Root
from rq.message import filter as filters
from rq.message import waits
from rq.message.waits import Reason
from rq.replies import MessageRow
from rq.words import moments, wording
from rq.words.nesting import Json
from rq.words.states import State
from rq.words.wording import duration

_LIVE = (State.RUN, State.QUE, State.PREP, State.ERR)
STATES = tuple(str(s) for s in State if s not in (State.NOWHERE, State.GONE))

Counts = Mapping[str, Mapping[str, int]]


def ls(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.count:
        return _count(root, args)
    states = [State(name) for name in args.state] or list(_LIVE)
    if args.why and set(states) != {State.QUE}:
        if args.state:
            raise BadInput(
                "--why tells why messages in que wait: leave --state out, or say que"
            )
        states = [State.QUE]
    wanted = _filter(args, time.time())
    with owner.Reader(root) as reader:
        rows = [
            row
            for queue in _queues(root, args)
            for state in states
            for row in _rows(reader, queue, state, args.limit, wanted)
        ]
        unlisted = _unlisted(reader, _queues(root, args), states)
    if args.json:
        term.print_json(rows)
    elif rows:
        _table_of_why(rows) if args.why else _table(rows)
        _hint_of_more(args.limit, rows)
    else:
        where = f"queue {args.queue}" if args.queue else "any queue"
        but = " that is meant" if wanted else ""
        term.note(f"no message in {', '.join(states)} of {where}{but}")
    if not args.json:
        _tell_unlisted(unlisted)
    return 0


def _filter(args: argparse.Namespace, now: float) -> dict[str, Json]:
    """Return the fields of a filter that were asked for."""
    after = None if args.since is None else moments.since(args.since, now)
    given = {"text": args.text, "cause": args.cause, "after": after}
    return {name: value for name, value in given.items() if value is not None}


def _rows(
    reader: Reader, queue: str, state: State, limit: int, wanted: dict[str, Json]
) -> list[MessageRow]:
    if not wanted:
        return reader.messages(queue, state, limit)
    meant = filters.from_json({**wanted, "state": str(state)})
    return reader.matching(queue, meant, limit)


def _queues(root: Root, args: argparse.Namespace) -> list[str]:
    if args.queue:
        return [place.queue_dir(root, args.queue).name]
    return place.queue_names(root)


def _count(root: Root, args: argparse.Namespace) -> int:
    """Say how many messages are in each state, without listing them."""
    with owner.Reader(root) as reader:
        counts = {queue: counts_of(reader, queue) for queue in _queues(root, args)}
    if args.json:
        term.print_json(counts)
    else:
        counts_table(counts)
    return 0


def _table(rows: Sequence[MessageRow]) -> None:
    now = time.time()
    term.table(
        ("QUEUE", "ID", "STATE", "DUE", "TRY", "RAN", "PARAM1", "STATUS"),
        [
            (
                row["queue"],
                row["msg_id"],
                row["state"],
                _due(row, now),
                row.get("attempt", "-"),
                _ran(row, now),
                str(row.get("param1") or "")[:30],
                _status(row),
            )
            for row in rows
        ],
    )


def _ran(row: MessageRow, now: float) -> str:
    """Return how long the last attempt ran, or runs by now."""
    if "started" in row:
        return duration(max(0.0, now - row["started"]))
    return duration(row["run_us"] / 1e6) if "run_us" in row else "-"


def _status(row: MessageRow) -> str:
    if "next_attempt" in row:
        return row["next_attempt"]
    said = str(row.get("status", "")).partition(" - ")[2]
    text = _why(row) or wording.in_list(row["state"], said)
    if "leased_by" in row:
        return f"[{row['leased_by']}] {text}"
    return f"[batch of {row['messages']}] {text}" if "batch" in row else text


def _why(row: MessageRow) -> str:
    """Return why a message waits, unless its due time says it."""
    why = row.get("why")
    return "" if why is None or why["reason"] == Reason.DUE else why["text"]


def _table_of_why(rows: Sequence[MessageRow]) -> None:
    term.table(
        ("QUEUE", "ID", "WHY"),
        [
            (row["queue"], row["msg_id"], row["why"]["text"] if "why" in row else "")
            for row in rows
        ],
    )


def _due(row: MessageRow, now: float) -> str:
    due = row.get("due")
    if row["state"] != State.QUE or due is None:
        return ""
    return term.from_now(float(due) - now)


def _hint_of_more(limit: int, rows: Sequence[MessageRow]) -> None:
    listed = Counter((row["queue"], row["state"]) for row in rows)
    cut = [f"{queue} {state}" for (queue, state), n in listed.items() if n >= limit]
    if cut:
        term.note(f"only {limit} of: {', '.join(cut)} (--limit N)")


def _unlisted(
    reader: owner.Reader, queues: Sequence[str], states: Sequence[State]
) -> dict[str, int]:
    """Return how many in que of each queue no list can show: they are rows still."""
    if State.QUE not in states:
        return {}
    return {queue: reader.rows_to_come(queue) for queue in queues}


def _tell_unlisted(unlisted: Mapping[str, int]) -> None:
    """Tell why more are counted than can be listed."""
    for queue, number in unlisted.items():
        if number:
            term.note(f"{queue}: {waits.rows(number)}, and listed then")


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "ls",
        "List messages: those that run, wait, are prepared or failed, the newest first.",
    )
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="of this queue only")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        metavar="STATE",
        help="one of " + ", ".join(STATES),
    )
    term.flag(parser, "--why", "why those that wait do, what runs next first")
    term.flag(parser, "--count", "only how many there are in each state")
    parser.add_argument("--text", help="in whose status this text stands")
    parser.add_argument("--cause", help="whose last attempt ended so: exit, timeout, …")
    parser.add_argument(
        "--since",
        metavar="WHEN",
        help="in that state since then at the earliest: 2h, 18:00, 2026-01-02T03:04",
    )
    parser.add_argument(
        "--limit",
        type=term.at_least(1),
        default=20,
        metavar="N",
        help="at most so many of each queue and state (20)",
    )
    term.json_option(parser)
    return parser


# ---- how many messages are in which state


def counts_table(counts: Counts) -> None:
    """Print the counts of queues; `-` where nothing can be said."""
    term.table(
        ("QUEUE", *(name.upper() for name in STATES)),
        [
            (queue, *(states.get(name, "-") for name in STATES))
            for queue, states in sorted(counts.items())
        ],
    )


def counts_of(reader: Reader, queue: str) -> dict[str, int]:
    """Return what the owner of a queue counts, or its folders."""
    counts = reader.counts(queue)
    return with_zeros({**counts, State.DISMISSED: counts.get("errack", 0)})


def with_zeros(states: Mapping[str, int], but: str = "") -> dict[str, int]:
    """Return counts with their zeros, all states `but` one."""
    return {name: states.get(name, 0) for name in STATES if name != but}
