"""`rq spark`: Spark's health, trying a job, and what else runs on it."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rq import config, names
from rq.cli import ENDED_IN_ERR, OK, USAGE, listing, place, term
from rq.cli import work as agent
from rq.errors import BadInput, NoJava, Refused
from rq.layout import Root
from rq.words import moments
from rq.words.states import State

if TYPE_CHECKING:
    from rq.spark.rounds import Round

# verb: (module:function, one line of help); a function takes (root, words).
VERBS: dict[str, tuple[str, str]] = {
    "doctor": ("rq.cli.spark:doctor", "prove that Spark works here, in ten seconds"),
    "try": (
        "rq.cli.spark:trial",
        "run a job on messages of a directory; nothing is sent",
    ),
    "history": ("rq.cli.spark:history", "update the history; print counts per queue"),
    "backfill": ("rq.cli.backfill:backfill", "make days of a queue's tables again"),
    "table": ("rq.cli.spark_table:table", "look at the tables that jobs write"),
    "schema": ("rq.cli.spark_schema:schema", "look at columns that were inferred"),
    "work": ("rq.cli.spark:work", "work on the messages of a queue, under leases"),
}
# Of what a job says when it is tried; results go into this directory.
_TRIED = "rq-try"
_EXTRA, _EXTRA_JAVA, _EXTRA_DUCKDB = "spark", "spark-java", "duckdb"
_BOOTSTRAP = place.CHECKOUT / "bin" / "bootstrap.py"
_PATIENCE = 300.0  # seconds to wait for a round that already runs


def spark(root: Root, words: list[str]) -> int:
    """Run `rq spark VERB …`."""
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return OK if words else USAGE
    if words[0] not in VERBS:
        there_are = ", ".join(VERBS)
        raise BadInput(f"there is no `rq spark {words[0]}`; there are: {there_are}")
    # What is started here, and what that starts, is of this root.
    os.environ["RQ_ROOT"] = str(root.path)
    return function_of(words[0])(root, words[1:])


def function_of(verb: str) -> Callable[..., int]:
    """Return what does a verb of the table."""
    module, _, name = VERBS[verb][0].partition(":")
    function: Callable[..., int] = getattr(importlib.import_module(module), name)
    return function


def _usage() -> str:
    lines = ["usage: rq spark VERB [options]", ""]
    return "\n".join(
        [*lines, *(f"  {verb:<10}{text}" for verb, (_, text) in VERBS.items())]
    )


def doctor(_root: Root, words: list[str]) -> int:
    """Print what was found; the first thing that is wrong ends it."""
    parser = term.parser("spark doctor", "Prove that Spark works here.")
    parser.parse_args(words)
    from rq.spark import doctor as examination

    for name, text in examination.examine():
        print(f"{name:<10} {text}", flush=True)
    print(term.colour("OK", "green"))
    return OK


def trial(_root: Root, words: list[str]) -> int:
    """Run a job on local folders; nothing is sent."""
    parser = term.parser(
        "spark try", "Run a job in one file on local messages; nothing is sent."
    )
    parser.add_argument("script", metavar="SCRIPT", type=Path)
    parser.add_argument(
        "--messages",
        metavar="DIR",
        type=Path,
        required=True,
        help="message folders, at any depth; else each file is a message",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path(_TRIED), help=f"({_TRIED}/)"
    )
    args = parser.parse_args(words)
    from rq.spark import trial as trials

    is_err = trials.run(args.script, args.messages, args.out, _print, term.note)
    return ENDED_IN_ERR if is_err else OK


def _print(text: str) -> None:
    print(text, flush=True)


# ---- `rq up --spark`, `rq up --duckdb`


def install_duckdb() -> None:
    """Put into the checkout's .venv what jobs without Spark need."""
    if not bootstrapped(_EXTRA_DUCKDB):
        raise Refused("DuckDB was not installed; RQ itself is as it was")
    print('DuckDB is installed: a job runs on it by @job(engine="duckdb")')


def install() -> None:
    """Put Spark into the checkout's .venv, and a Java when there is none."""
    from rq.spark import classes, java

    if not bootstrapped(_EXTRA):
        raise Refused("Spark was not installed; RQ itself is as it was")
    try:
        java.find(os.environ)
    except NoJava:
        term.note("there is no Java that Spark can use: installing one for it")
        if not bootstrapped(_EXTRA_JAVA):
            raise
        importlib.invalidate_caches()
    installed = java.find(os.environ)
    term.note("reading Spark's classes once, so that each job starts in half the time")
    if not classes.keep(installed):
        term.note("that did not succeed: jobs run, and take some seconds more to start")
    print(
        f"Spark is installed, with Java {installed.version}; `rq spark doctor` tests it"
    )


def can_bootstrap() -> bool:
    """Whether this is a checkout, which installs for itself what it needs."""
    return _BOOTSTRAP.exists()


def bootstrapped(extra: str) -> bool:
    """Make sure of an extra of pyproject.toml, as the launchers do."""
    if not can_bootstrap():
        raise Refused(
            "this RQ came in a package, which only its installer adds to: install the "
            f"wheel again with the extra, as in `pip install 'WHEEL.whl[{extra}]'`"
        )
    command = [sys.executable, "-I", str(_BOOTSTRAP), extra]
    return subprocess.run(command, check=False).returncode == OK


# ---- rq spark history


def history(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "spark history",
        "Read what has happened since the last round into the history on Spark, publish\n"
        "it for the web, and print how many messages are in which state, which is what\n"
        "`rq ls --count` counts.",
    )
    parser.add_argument(
        "queue", nargs="?", metavar="QUEUE", help="print this queue only"
    )
    term.flag(parser, "--skip-gaps", "go on although events are missing")
    term.flag(parser, "--rebuild", "build the history anew from the journals")
    term.json_option(parser)
    args = parser.parse_args(words)
    only = place.queue_dir(root, args.queue).name if args.queue else None
    done = run(root, skip_gaps=args.skip_gaps, rebuild=args.rebuild)
    from rq.spark.rounds import sentence

    counts = counted(done, only)
    if args.json:
        term.print_json({**summary(done), "counts": counts})
    else:
        listing.counts_table(counts)
        print(sentence(done))
    return OK


def run(root: Root, **settings: bool) -> Round:
    """Run a round in a Spark of its own; print what it does."""
    from rq.spark import session

    session.demand_spark()
    from rq.spark.rounds import Settings, run_round

    term.note("starting Spark")
    spark = session.session("rq-history", quiet=True)
    try:
        return run_round(
            spark, root, Settings(patience=_PATIENCE, **settings), term.note
        )
    finally:
        session.close(spark)


def counted(done: Round, only: str | None = None) -> dict[str, dict[str, int]]:
    """Return the counts of all queues, or of one; what is prepared is in no journal."""
    names = [only] if only else sorted(done.counts)
    return {
        name: listing.with_zeros(done.counts.get(name, {}), but=State.PREP)
        for name in names
    }


def summary(done: Round) -> dict[str, object]:
    """Return what a round did, for programs."""
    return {
        "as_of": done.as_of,
        "batches": done.batches,
        "events": done.events,
        "days": done.days,
        "silent": done.silent,
    }


# ---- rq spark work


def work(root: Root, words: list[str]) -> int:
    """Work on the messages of a queue until the time is over, or TERM."""
    args = _work_parser().parse_args(words)
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
    term.note("starting Spark")
    spark = session.session(f"rq-work {wanted.label}", quiet=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # Spark has a handler of its own
        signal.signal(number, lambda *_: stop.set())
    try:
        term.note(f"{slots} slots work on {url}")
        lease_work.run(spark, wanted, lease_work.Ear(stop, term.note))
    finally:
        session.close(spark)
    return OK


def _url(root: Root, queue: str) -> str:
    """Return the address of a queue, of this root or of another host; BadInput."""
    from rq.outbound import peers  # `rq up` needs none of it

    if names.is_queue_name(queue):
        queue = f"{config.read_root(root).base_url}q/{queue}"
    peers.target(queue)
    return queue


def _work_parser() -> argparse.ArgumentParser:
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
