"""`rq spark work`: slots of a queue on Spark."""

from __future__ import annotations

import argparse
import signal
import socket
import threading

from rq import config, names
from rq.cli import OK, place, term
from rq.cli import work as agent
from rq.layout import Root
from rq.outbound import peers
from rq.words import moments


def work(root: Root, words: list[str]) -> int:
    """Work on the messages of a queue until the time is over, or TERM."""
    args = _parser().parse_args(words)
    from rq.spark import session
    from rq.work import options

    url = _url(root, args.queue)
    slots, script = agent.slots(args), agent.script(args)
    token = None if args.token_file is None else options.read_token(args.token_file)
    seconds = None if args.seconds is None else moments.duration(args.seconds)
    session.demand_spark()
    from rq.spark import lease_work

    wanted = lease_work.Work(
        url=url,
        slots=slots,
        seconds=seconds,
        script=script,
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
        place.note(f"{slots} slots work on {url}")
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


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "spark work",
        "Let Spark work on the messages of a queue, under leases, with the script of an\n"
        "agent: each slot is a task that runs as long as this does, on a core of Spark.",
    )
    parser.add_argument(
        "queue", metavar="QUEUE", help="its name, or http(s)://HOST:PORT/q/NAME"
    )
    agent.add_options(parser, "spark- and that of this host")
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", help="work for so long (until TERM)"
    )
    return parser
