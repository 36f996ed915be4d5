"""`rq work`: work on the messages of a queue of another host."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from rq import config, logs
from rq.cli import OK, term
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.words import moments

GRACE = 10.0  # seconds


def work(root: str | None, words: list[str]) -> int:
    """Run an agent until it is told to end. It needs no root: `root` is the directory of
    `--root`, whose config/peers.json may hold the login."""
    args = _parser().parse_args(words)
    from rq.work import stop_signals

    stop_signals.exit_when_told()
    from rq.work import options, place, process

    to = options.target(args.url)
    peer = options.peer_of(to, _root(root), args.token_file, args.insecure)
    chosen = options.Options(
        to=to,
        peer=peer,
        slots=slots(args),
        label=options.label(args.label),
        script=script(args),
        base=(args.dir or place.default_base()).absolute(),
        once=args.once,
        seconds=None if args.seconds is None else moments.duration(args.seconds),
        goes_on=args.go_on,
        grace=moments.duration(args.grace),
    )
    level = logging.DEBUG if args.verbose else logging.INFO
    logs.open_log(f"rq work {to.queue}", None, level)
    process.run(chosen)
    sys.stderr.flush()
    return OK


def _root(option: str | None) -> Root | None:
    """Return where a login may be found; BadConfig when `--root` names no such place."""
    try:
        root = config.find_root(option)
    except BadConfig:
        return None
    if option is not None and not root.config_dir.is_dir():
        raise BadConfig(
            f"--root {option} names no directory of an RQ: no config/ in it"
        )
    return root


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "work",
        "Work on the messages of a queue of another host, under leases.\n\n"
        "  rq work https://jobs.example:3333/q/thumbs --slots 4 --token-file ~/.rq.token\n\n"
        "Without --token-file it logs in as config/peers.json of --root says.",
    )
    parser.add_argument(
        "url", metavar="URL", help="the queue: http(s)://HOST:PORT/q/NAME"
    )
    add_options(parser, "that of this host")
    term.flag(parser, "--once", "end when nothing is due any more")
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", help="lease for so long, say 8h"
    )
    term.flag(
        parser,
        "--go-on",
        "let scripts go on when nobody renews their leases: others may work on the "
        "same messages then",
    )
    parser.add_argument(
        "--grace",
        default=f"{GRACE:g}s",
        metavar="TIME",
        help="how long scripts may take to end (%(default)s)",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="where agents keep what is at work ($XDG_STATE_HOME/rq-work)",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say more on standard error"
    )
    return parser


# ---- what rq work and rq spark work are told alike


def add_options(parser: argparse.ArgumentParser, label: str) -> None:
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
    term.flag(parser, "--insecure", "let the token go over plain HTTP, for all to read")


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
