"""Man pages and shell completion, both of the parsers that read the words of commands.

There is no second list of verbs: each verb of the table is called as for its `--help`, and
its parser is taken where it would print that.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

import rq
from rq import cli
from rq.cli import check_rq, install, mgr, spark, verbs
from rq.layout import Root

_NOWHERE = Root(Path("/nonexistent"))
# Shell: where it looks for completion, below share/.
COMPLETION: Mapping[str, str] = {
    "bash": "bash-completion/completions/rq",
    "zsh": "zsh/site-functions/_rq",
    "fish": "fish/vendor_completions.d/rq.fish",
}
_PROGRAMS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {
    "check_rq": check_rq.parser,
    "rq-install": install.parser,
    "rq-mgr": mgr.parser,
}
# Asks nobody, so that it is quick: a queue is a directory of the root.
_QUEUES = shtab.cmd('ls "$RQ_ROOT/queue" 2>/dev/null')


def write(share: Path) -> list[Path]:
    """Write all below share/; return the files."""
    pages = {f"man/man1/{name}.1": text for name, text in man_pages().items()}
    scripts = {path: completion(shell) for shell, path in COMPLETION.items()}
    written = []
    for name, text in {**pages, **scripts}.items():
        path = share / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written.append(path)
    return written


# ---- the parsers


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb, in the order of `rq --help`. Those of the Ruby RQ have
    none: they read their words as that one did."""
    return {
        verb: _of_spark() if verb == "spark" else _taken(cli.function_of(row[0]))
        for verb, row in verbs.VERBS.items()
    }


def _taken(act: Callable[..., int]) -> argparse.ArgumentParser:
    """Return the parser that a verb makes when it is asked for help."""
    taken: list[argparse.ArgumentParser] = []

    def take(parser: argparse.ArgumentParser, _file: object = None) -> None:
        taken.append(parser)

    usual = argparse.ArgumentParser.print_help
    argparse.ArgumentParser.print_help = take
    try:
        with contextlib.suppress(SystemExit):
            act(_NOWHERE, ["--help"])
    finally:
        argparse.ArgumentParser.print_help = usual
    return taken[0]


def _of_spark() -> argparse.ArgumentParser:
    """Return a parser of the one group that has a table, so as not to import Spark."""
    about = verbs.VERBS["spark"][1]
    parser = argparse.ArgumentParser(prog="rq spark", description=about)
    rows = {
        verb: (_taken(spark.function_of(verb)), text)
        for verb, (_, text) in spark.VERBS.items()
    }
    _join(parser, rows)
    return parser


def _join(
    parser: argparse.ArgumentParser,
    rows: Mapping[str, tuple[argparse.ArgumentParser, str]],
) -> None:
    """Give a parser verbs whose parsers are there already."""
    kinds = parser.add_subparsers(metavar="VERB")
    for verb, (known, text) in rows.items():
        kinds.add_parser(verb, help=text.replace("%", "%%"))
        kinds.choices[verb] = known


# ---- completion


def completion(shell: str) -> str:
    parser = argparse.ArgumentParser(prog="rq", description=rq.__doc__)
    parser.add_argument("--root", metavar="DIR").complete = shtab.DIRECTORY
    rows = {verb: (known, verbs.VERBS[verb][1]) for verb, known in parsers().items()}
    _join(parser, rows)
    for action in _actions(parser):
        if action.metavar == "QUEUE":
            action.complete = _QUEUES
        elif action.metavar in ("FILE", "SCRIPT", "PATH"):
            action.complete = shtab.FILE
        elif action.metavar in ("DIR", "DIRECTORY"):
            action.complete = shtab.DIRECTORY
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Give the options and words of a parser and of all its verbs."""
    for action in parser._actions:  # nothing public lists them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)


# ---- man pages


def man_pages() -> dict[str, str]:
    """Return name: page, for `rq`, each of its verbs, and the other commands."""
    pages = {"rq": _main_page()}
    for verb, parser in parsers().items():
        pages[f"rq-{verb}"] = _page(parser, f"rq-{verb}", verbs.VERBS[verb][1])
    for name, parser in _PROGRAMS.items():
        pages[name] = _page(parser(), name, "")
    return pages


def _page(parser: argparse.ArgumentParser, title: str, about: str) -> str:
    about = about or (parser.description or "").split(":")[0].rstrip(".")
    page = Manpage(parser, _data=_head(about), format="pretty")
    page.prog = title
    return str(page)


def _main_page() -> str:
    parser = argparse.ArgumentParser(
        prog="rq",
        usage="rq [--root DIR] VERB [options]",
        description="Each VERB has a page of its own, rq-VERB(1), and --help.",
    )
    parser.add_argument(
        "--root", metavar="DIR", help="the directory of RQ; else $RQ_ROOT"
    )
    listed = parser.add_argument_group("verbs")
    for verb, (_, text) in verbs.VERBS.items():
        listed.add_argument(f"--{verb}", action="store_true", help=_literal(text))
    page = str(
        Manpage(parser, _data=_head(str(rq.__doc__).rstrip(".")), format="pretty")
    )
    for verb in verbs.VERBS:
        page = page.replace(rf"\fB\-\-{_hyphens(verb)}\fR", rf"\fB{_hyphens(verb)}\fR")
    return page


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def _hyphens(text: str) -> str:
    return text.replace("-", r"\-")


def _head(about: str) -> dict[str, str]:
    return {
        "project_name": "RQ",
        "version": rq.__version__,
        "manual_title": "RQ",
        "description": about,
    }
