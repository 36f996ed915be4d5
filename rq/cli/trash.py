"""`rq trash`: the queues that were removed."""

from __future__ import annotations

from rq import trash as bin_
from rq.cli import place, term
from rq.layout import Root


def trash(root: Root, words: list[str]) -> int:
    made = term.parser("trash", "The queues that were removed, until they are deleted.")
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them, newest first")
    term.json_option(listing)
    empty = kinds.add_parser("empty", help="delete them for good, after asking")
    empty.add_argument("name", nargs="?", metavar="NAME", help="of this name only")
    empty.add_argument("--yes", "-y", action="store_true", help="do not ask")
    keep = kinds.add_parser(
        "keep",
        help="linking the name again makes a new queue, and does not take it back",
    )
    keep.add_argument("name", metavar="NAME")
    args = made.parse_args(words)
    if args.what == "ls":
        return _ls(root, as_json=args.json)
    if args.what == "keep":
        for one in bin_.keep(root, args.name):
            print(f"kept {one.path}")
        return 0
    return _empty(root, args.name, yes=args.yes)


def _ls(root: Root, *, as_json: bool) -> int:
    found = bin_.ls(root)
    if as_json:
        term.print_json([one.to_json() for one in found])
    elif found:
        term.table(
            ("QUEUE", "REMOVED", "KEPT", "WHERE"),
            [
                (
                    one.name,
                    term.moment(one.removed),
                    "yes" if one.kept else "no",
                    one.path,
                )
                for one in found
            ],
        )
    else:
        place.note("the trash is empty")
    return 0


def _empty(root: Root, name: str | None, *, yes: bool) -> int:
    wanted = [one for one in bin_.ls(root) if name in (None, one.name)]
    if not wanted:
        place.note("nothing to delete")
        return 0
    shown = ", ".join(one.path.name for one in wanted)
    if not term.confirm(f"Delete {shown} and all messages in it for good?", yes=yes):
        print("kept")
        return 0
    for one in bin_.empty(wanted):  # what was shown, and nothing that came since
        print(f"deleted {one.path}")
    return 0
