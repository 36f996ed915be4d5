"""`rq spark work`: slots of a queue on Spark."""

from __future__ import annotations

import argparse
import signal
import socket
import threading
from pathlib import Path

from rq import config, moments, names
from rq.cli import OK, place, term
from rq.errors import BadInput
from rq.layout import Root
from rq.outbound import peers


def work(root: Root, words: list[str]) -> int:
    """Work on the messages of a queue until the time is over, or TERM."""
    args = _parser().parse_args(words)
    from rq.spark import session
    from rq.work import options

    url = _url(root, args.queue)
    if args.slots > options.MOST_SLOTS:
        raise BadInput(f"there are at most {options.MOST_SLOTS} slots")
    token = None if args.token_file is None else options.read_token(args.token_file)
    seconds = None if args.seconds is None else moments.duration(args.seconds)
    session.demand_spark()
    from rq.spark import lease_work

    wanted = lease_work.Work(
        url=url,
        slots=args.slots,
        seconds=seconds,
        script=None if args.script is None else _directory(args.script),
        token=token,
        insecure=args.insecure,
        label=options.label(args.label or f"spark-{socket.gethostname()}"[:48]),
    )
    place.note("starting Spark")
    spark = session.session(f"rq-work {wanted.label}", quiet=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # Spark has a handler of its own
        signal.signal(number, lambda *_: stop.set())
    try:
        place.note(f"{args.slots} slots work on {url}")
        lease_work.run(spark, wanted, lease_work.Ear(stop, place.note))
    finally:
        session.close(spark)
    return OK


def _url(root: Root, queue: str) -> str:
    """Return the address of a queue, of this root or of another host; BadInput."""
    if names.is_queue_name(queue):
        queue = f"{config.read_root(root).base_url}q/{queue}"
    peers.target(queue)
    return queue


def _directory(path: Path) -> Path:
    if not (path / "run").exists():
        raise BadInput(
            f"{path} has no `run`: --script names a directory as in scandir/"
        )
    return path.resolve()


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "spark work",
        "Let Spark work on the messages of a queue, under leases, with the script of an\n"
        "agent: each slot is a task that runs as long as this does.",
    )
    parser.add_argument(
        "queue", metavar="QUEUE", help="its name, or http(s)://HOST:PORT/q/NAME"
    )
    parser.add_argument(
        "--slots",
        type=term.at_least(1),
        default=1,
        metavar="N",
        help="messages at a time: as many as Spark has cores, or fewer (%(default)s)",
    )
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", help="work for so long (until TERM)"
    )
    parser.add_argument(
        "--script",
        type=Path,
        metavar="DIR",
        help="the directory with `run` (the one that the queue shares)",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="holds the token, mode 600"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let the token go over plain HTTP, for all to read",
    )
    parser.add_argument("--label", metavar="NAME", help="name of these workers")
    return parser
