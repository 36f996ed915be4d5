"""`rq trash`: the queues that were removed."""

from __future__ import annotations

from rq.cli import term
from rq.config import trash as bin_
from rq.layout import Root


def trash(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "trash",
        "Queues that were removed: they lie in the trash until somebody deletes them.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, newest first")
    term.json_option(listing)
    empty = kinds.add_parser("empty", help="delete them for good, after asking")
    empty.add_argument(
        "name", nargs="?", metavar="NAME", help="only what was queue NAME"
    )
    empty.add_argument("--yes", "-y", action="store_true", help="do not ask")
    keep = kinds.add_parser(
        "keep",
        help="keep a removed queue in the trash when a new queue gets its name, which "
        "else takes it back",
    )
    keep.add_argument("name", metavar="NAME")
    args = parser.parse_args(words)
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    if args.what == "keep":
        for removed in bin_.keep(root, args.name):
            print(f"kept {removed.path}")
        return 0
    return _empty(root, args.name, yes=args.yes)


def _ls(root: Root, *, as_json: bool) -> int:
    listed = bin_.ls(root)
    term.listed(
        ("QUEUE", "REMOVED", "KEPT", "WHERE"),
        [
            (
                removed.name,
                term.moment(removed.removed),
                "yes" if removed.kept else "no",
                removed.path,
            )
            for removed in listed
        ],
        "the trash is empty",
        [removed.to_json() for removed in listed] if as_json else None,
    )
    return 0


def _empty(root: Root, name: str | None, *, yes: bool) -> int:
    chosen = [removed for removed in bin_.ls(root) if name in (None, removed.name)]
    if not chosen:
        term.note("nothing to delete")
        return 0
    paths = ", ".join(removed.path.name for removed in chosen)
    if not term.confirm(f"Delete {paths} with all messages for good?", yes=yes):
        print("nothing was deleted")
        return 0
    for removed in bin_.empty(chosen):  # what was named, and nothing that came since
        print(f"deleted {removed.path}")
    return 0
