"""`rq router`, `rq verify_rules`: rules looked at, tried and taken over, never applied."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rq import config
from rq.builtin.router import ancestor, rules
from rq.builtin.router.rules import Rules
from rq.cli import FAILED, OK, term
from rq.cli.named_files import FRESH, Files
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.words.nesting import Json

_RUBY = ".rb"
_STDIN = "-"
_ANCESTORS = "rq_router_rules.rb"


def named_rules(words: list[str]) -> list[str]:
    """Return the files that the words of `verify_rules` name."""
    path = _verifying().parse_args(words).path
    return [path] if path else []


def verify_rules(root: Root, words: list[str], files: Files = FRESH) -> int:
    """Say `ok`, or `fail bad router rules file`."""
    args = _verifying().parse_args(words)
    try:
        table = _read(args.path or str(_default(root)), files)
    except BadConfig as error:
        print("fail bad router rules file")
        if args.verbose:
            print(error)
        return FAILED
    print("ok")
    if args.verbose:
        print(_json(table))
    return OK


def _verifying() -> argparse.ArgumentParser:
    parser = term.parser(
        "verify_rules", "Check routing rules: JSON, or those of the Ruby RQ."
    )
    parser.add_argument("--path", metavar="F", help="the file (config/router.json)")
    term.flag(parser, "--verbose", "print the rules, or what is wrong with them")
    return parser


def named(words: list[str]) -> list[str]:
    """Return the files that the words of `router` name."""
    args = _parser().parse_args(words)
    if args.verb == "import":
        return [args.path]
    return [path for path in (args.message, args.rules) if path not in (None, _STDIN)]


def router(root: Root, words: list[str], files: Files = FRESH) -> int:
    """Try rules on a message, or take over the ancestor's."""
    args = _parser().parse_args(words)
    if args.verb == "import":
        print(_json(_read_ruby(args.path, files)))
        return OK
    table = _read(args.rules or str(root.router), files)
    trial = _try(table, _message(args.message, files))
    if args.json:
        term.print_json(asdict(trial))
    else:
        _print_trial(trial)
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "router",
        "Routing rules: try them on a message, or convert those of the Ruby RQ.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    trying = verbs.add_parser(
        "try", help="print what would become of a message; nothing is sent"
    )
    trying.add_argument("message", metavar="MESSAGE.json", help="a message; - is stdin")
    trying.add_argument("--rules", metavar="F", help="the rules (config/router.json)")
    term.json_option(trying)
    taking = verbs.add_parser("import", help="print rules of the Ruby RQ as JSON")
    taking.add_argument("path", metavar="RULES.rb")
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What would become of a message."""

    rule: str
    action: str
    log: bool
    delay: int  # seconds
    destinations: list[str]


def _try(table: Rules, message: Mapping[str, Json]) -> Trial:
    rule = table.first(message)
    # Where one of several is chosen by chance, all are named.
    every = rules.destinations(rule, str(message.get("dest", "")), " or ".join)
    return Trial(
        rule=rule.name,
        action=str(rule.action),
        log=rule.log,
        delay=rule.delay,
        destinations=every,
    )


def _print_trial(trial: Trial) -> None:
    print(f"rule    {trial.rule}")
    print(f"action  {trial.action}")
    for dest in trial.destinations:
        print(f"to      {dest}")
    if trial.delay:
        print(f"due     {trial.delay} s later")
    if trial.log:
        print("log     log/rq_router.log")


def _message(name: str, files: Files) -> Mapping[str, Json]:
    if name != _STDIN:
        return config.json_object(_content(name, files), Path(name))
    try:
        message: Json = json.load(sys.stdin)
    except ValueError as error:
        raise BadInput(f"stdin is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise BadInput("stdin does not hold a JSON object")
    return message


def _default(root: Root) -> Path:
    """Return the file of the rules: the Ruby RQ's, as long as there is no router.json."""
    old = root.config_dir / _ANCESTORS
    return old if old.exists() and not root.router.exists() else root.router


def _read(path: str, files: Files) -> Rules:
    if path.endswith(_RUBY):
        return _read_ruby(path, files)
    try:
        return rules.parse(config.json_object(_content(path, files), Path(path)))
    except BadConfig as error:
        text = str(error)
        raise BadConfig(text if path in text else f"{path}: {text}") from None


def _read_ruby(path: str, files: Files) -> Rules:
    try:
        return ancestor.parse(_content(path, files).decode())
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path} cannot be read: {error}") from None
    except BadConfig as error:
        raise BadConfig(f"{path}: {error}") from None


def _content(path: str, files: Files) -> bytes:
    try:
        return files.read(path)
    except (OSError, BadInput) as error:
        raise BadConfig(f"there are no rules to read: {error}") from None


def _json(table: Rules) -> str:
    return json.dumps(table.to_json(), indent=1, ensure_ascii=False)
