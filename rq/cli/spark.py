"""`rq spark`: Spark's health, trying a job, and what else runs on it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rq.cli import ENDED_IN_ERR, OK, USAGE, place, term
from rq.errors import BadInput, NoJava, Refused
from rq.layout import Root

# verb: (module:function, one line of help); a function takes (root, words).
VERBS: dict[str, tuple[str, str]] = {
    "doctor": ("rq.cli.spark:doctor", "prove that Spark works here, in ten seconds"),
    "try": (
        "rq.cli.spark:trial",
        "run a job on messages of a directory; nothing is sent",
    ),
    "history": ("rq.cli.history:history", "update the history; print counts per queue"),
    "work": ("rq.cli.spark_work:work", "work on the messages of a queue, under leases"),
}
# Of what a job says when it is tried; results go into this directory.
_TRIED = "rq-try"
_EXTRA, _EXTRA_JAVA, _EXTRA_DUCKDB = "spark", "spark-java", "duckdb"


def spark(root: Root, words: list[str]) -> int:
    """Run `rq spark VERB …`."""
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return OK if words else USAGE
    row = VERBS.get(words[0])
    if row is None:
        there_are = ", ".join(VERBS)
        raise BadInput(f"there is no `rq spark {words[0]}`; there are: {there_are}")
    # What is started here, and what that starts, is of this root.
    os.environ["RQ_ROOT"] = str(root.path)
    module, _, function = row[0].partition(":")
    act: Callable[..., int] = getattr(importlib.import_module(module), function)
    return act(root, words[1:])


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

    is_err = trials.run(args.script, args.messages, args.out, _print, place.note)
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
    from rq.spark import java

    if not bootstrapped(_EXTRA):
        raise Refused("Spark was not installed; RQ itself is as it was")
    try:
        java.find(os.environ)
    except NoJava:
        place.note("there is no Java that Spark can use: installing one for it")
        if not bootstrapped(_EXTRA_JAVA):
            raise
        importlib.invalidate_caches()
    installed = java.find(os.environ)
    print(
        f"Spark is installed, with Java {installed.version}; `rq spark doctor` tests it"
    )


def bootstrapped(extra: str) -> bool:
    """Make sure of an extra of pyproject.toml, as the launchers do."""
    program = place.CHECKOUT / "bin" / "bootstrap.py"
    if not program.exists():
        raise Refused(f"this is no checkout: run `pip install 'rq-spool[{extra}]'`")
    command = [sys.executable, "-I", str(program), extra]
    return subprocess.run(command, check=False).returncode == OK
