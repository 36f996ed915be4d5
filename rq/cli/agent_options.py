"""What `rq work` and `rq spark work` are told alike: how many slots, which script, who asks."""

from __future__ import annotations

import argparse
from pathlib import Path

from rq.cli import term
from rq.errors import BadInput


def add(parser: argparse.ArgumentParser, label: str) -> None:
    """Add the options to a parser; `label` says what a worker is called else."""
    parser.add_argument(
        "--slots",
        type=term.at_least(1),
        default=1,
        metavar="N",
        help="messages at a time (%(default)s)",
    )
    parser.add_argument(
        "--script",
        type=Path,
        metavar="DIR",
        help="the directory with `run`, perhaps with config.json (the one that the queue "
        "shares)",
    )
    parser.add_argument(
        "--label", metavar="NAME", help=f"name of this worker ({label})"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="holds the token, mode 600",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let the token go over plain HTTP, for all to read",
    )


def script(args: argparse.Namespace) -> Path | None:
    """Return the directory of the script, None if the queue's is meant; BadInput."""
    path: Path | None = args.script
    if path is None:
        return None
    if not (path / "run").exists():
        raise BadInput(
            f"{path} has no `run`: --script names a directory as in scandir/"
        )
    return path.resolve()


def slots(args: argparse.Namespace) -> int:
    """Return how many messages are worked on at a time; BadInput."""
    from rq.work.options import MOST_SLOTS

    if args.slots > MOST_SLOTS:
        raise BadInput(f"there are at most {MOST_SLOTS} slots")
    return int(args.slots)
