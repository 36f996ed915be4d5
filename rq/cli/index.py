"""`rq index`: how far the index has read, and that it is made again."""

from __future__ import annotations

import time

from rq.cli import term
from rq.errors import Refused
from rq.index import schema, word
from rq.index.questions import Index
from rq.index.rows import Freshness
from rq.layout import Root
from rq.proc import locks
from rq.words.wording import duration, size


def index(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "index",
        "The index: what questions about many messages are asked of. It is never the "
        "truth, and can be made again from the journals at any time.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    status = kinds.add_parser("status", help="how far it has read, and its size")
    term.json_option(status)
    kinds.add_parser("rebuild", help="make it again from the journals")
    args = parser.parse_args(words)
    return _status(root, as_json=args.json) if args.what == "status" else _rebuild(root)


def _status(root: Root, *, as_json: bool) -> int:
    with Index.at(root) as opened:
        fresh = opened.freshness()
    held = schema.place(root).stat().st_size
    if as_json:
        term.print_json(
            {
                "as_of": fresh.as_of,
                "read": fresh.read,
                "is_building": fresh.is_building,
                "bytes": held,
            }
        )
    else:
        print(f"{_sentence(fresh)}; {size(held)}")
    return 0


def _sentence(fresh: Freshness) -> str:
    """Return how far the index has read.

    >>> _sentence(Freshness(as_of=0.0, read=0.4, is_building=True))
    'it is being made: 40 % of the journals is read'
    """
    if fresh.is_building:
        return f"it is being made: {fresh.read:.0%} of the journals is read".replace(
            "%", " %"
        )
    behind = time.time() - fresh.as_of
    late = f", {duration(behind)} ago: is RQ up?" if behind > 60 else ""
    return f"as of {term.moment(fresh.as_of)}{late}"


def _rebuild(root: Root) -> int:
    """Let its process make it again; while none runs, remove it: the next one begins."""
    lock = locks.lock(root.config_dir / "index.lock")
    if lock is not None:
        schema.remove(root)
        print("removed: it is made again when RQ is up")
        return 0
    if not word.ask_rebuild(root):
        raise Refused("the process of the index does not hear: `rq status` says why")
    print("it is made again; `rq index status` says how far it is")
    return 0
