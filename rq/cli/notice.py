"""`rq notice`: whom queues tell how they go, what was told last, and a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rq.cli import owner, place, term
from rq.config import secrets
from rq.errors import RQError
from rq.layout import Root
from rq.replies import MessageRow, NoticesView, TellsRow
from rq.words.states import State
from rq.words.wording import duration

_NOTICE = "notice"
_LOOKED_AT = 200  # messages of each state in which those of a queue are looked for
_LAST = 10  # that are shown
_STATES = (State.RUN, State.QUE, State.ERR, State.DISMISSED, State.DONE)


def notice(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "notice",
        "Whom queues tell how they go (on_err, on_output, on_recovered, on_slow,\n"
        "on_quiet), by mail, at a URL, or in a queue.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser(
        "ls", help="list them; of one queue the last notices, too"
    )
    listing.add_argument("queue", nargs="?", metavar="QUEUE")
    term.json_option(listing)
    test = kinds.add_parser("test", help="send a test notice now")
    test.add_argument("queue", metavar="QUEUE")
    args = parser.parse_args(words)
    if args.what == "test":
        return _test(root, args.queue)
    if args.queue is None:
        return _list_all(root, as_json=args.json)
    return _list(root, args.queue, as_json=args.json)


def _test(root: Root, queue: str) -> int:
    whom = cast(Sequence[str], owner.demand(root, queue, "test_notice"))
    for target in whom:
        print(f"a test notice is on its way to {term.plain(target)}")
    print("`rq ls notice --state err --state done` says what became of it")
    return 0


def _list_all(root: Root, *, as_json: bool) -> int:
    place.demand_running(root)
    views = dict(_views(root))
    rows = [
        (name, *_cells(row)) for name, view in views.items() for row in view["tells"]
    ]
    none = "no queue tells anybody anything: docs/reference/notices.md"
    term.listed(("QUEUE", *_HEADS), rows, none, views if as_json else None)
    return 0


def _views(root: Root) -> Iterator[tuple[str, NoticesView]]:
    for name in place.queue_names(root):
        try:
            yield name, _view(root, name)
        except RQError as error:
            term.note(str(error))


def _view(root: Root, queue: str) -> NoticesView:
    return cast(NoticesView, owner.demand(root, queue, "notices"))


def _list(root: Root, queue: str, *, as_json: bool) -> int:
    view = _view(root, queue)
    with owner.Reader(root) as reader:
        last = _last(reader, root, queue)
    if as_json:
        term.print_json({**view, "last": last})
        return 0
    cells = [_cells(row) for row in view["tells"]]
    term.listed(_HEADS, cells, f"{queue} tells nobody anything")
    if last:
        print()
        term.table(
            ("NOTICE", "STATE", "MATTER", "WHOM", "STATUS"),
            [
                (
                    row["msg_id"],
                    row["state"],
                    row.get("param3") or "",
                    _masked(str(row.get("param1") or "")),
                    str(row.get("status", "")).partition(" - ")[2][:80],
                )
                for row in last
            ],
        )
    return 0


def _last(reader: owner.Reader, root: Root, queue: str) -> list[MessageRow]:
    """Return the newest notices of a queue."""
    if not root.queue(_NOTICE).config.exists():
        return []
    rows = [
        row
        for state in _STATES
        for row in reader.messages(_NOTICE, state, _LOOKED_AT)
        if row.get("param2") == queue
    ]
    return sorted(rows, key=lambda row: row["msg_id"], reverse=True)[:_LAST]


_HEADS = ("MATTER", "WHOM", "FROM", "EVERY", "LIMIT", "LAST", "SINCE THEN")


def _cells(row: TellsRow) -> tuple[str, ...]:
    limit = row["seconds"]
    return (
        row["matter"],
        _masked(" ".join(row["whom"])),
        "its config" if row["own"] else "the root's",
        duration(row["every"] * 60) if row["every"] else "each",
        "" if limit is None else duration(limit),
        term.moment(row["last"]),
        f"{row['more']} more" if row["more"] else "",
    )


def _masked(target: str) -> str:
    """Return a target without the password that its URL may hold."""
    return term.plain(secrets.masked({"whom": target})["whom"])
