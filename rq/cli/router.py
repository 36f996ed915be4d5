"""`rq router`, `rq verify_rules`: rules looked at, tried and taken over, never applied."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rq import config
from rq.cli import FAILED, OK, term
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.router import ancestor, rules
from rq.router.rules import Rules

_RUBY = ".rb"
_ANCESTORS = "rq_router_rules.rb"


def verify_rules(root: Root, words: list[str]) -> int:
    """Say `ok`, or `fail bad router rules file`."""
    made = term.parser("verify_rules", "Check routing rules, JSON or the ancestor's.")
    made.add_argument("--path", metavar="F", help="the file (config/router.json)")
    made.add_argument(
        "--verbose", action="store_true", help="show rules, or what is bad"
    )
    args = made.parse_args(words)
    try:
        found = _read(Path(args.path) if args.path else _default(root))
    except BadConfig as error:
        print("fail bad router rules file")
        if args.verbose:
            print(error)
        return FAILED
    print("ok")
    if args.verbose:
        print(_shown(found))
    return OK


def router(root: Root, words: list[str]) -> int:
    """Try rules on a message, or take over the ancestor's."""
    made = term.parser("router", "Routing rules: try them, take over the ancestor's.")
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    trying = verbs.add_parser("try", help="what would become of a message")
    trying.add_argument("message", metavar="MESSAGE.json", help="a message; - is stdin")
    trying.add_argument("--rules", metavar="F", help="the rules (config/router.json)")
    term.json_option(trying)
    taking = verbs.add_parser("import", help="print the ancestor's rules as JSON")
    taking.add_argument("path", metavar="RULES.rb")
    args = made.parse_args(words)
    if args.verb == "import":
        print(_shown(_read_ruby(Path(args.path))))
        return OK
    found = _read(Path(args.rules) if args.rules else root.router)
    told = _tried(found, _message(args.message))
    if args.json:
        term.print_json(told)
    else:
        _print_tried(told)
    return OK


def _tried(found: Rules, message: Mapping[str, Any]) -> dict[str, Any]:
    rule = found.first(message)
    # Of several all are told: chance has no place in a trial.
    every = rules.destinations(rule, str(message.get("dest", "")), " or ".join)
    return {
        "rule": rule.name,
        "action": str(rule.action),
        "log": rule.log,
        "delay": rule.delay,
        "destinations": every,
    }


def _print_tried(told: Mapping[str, Any]) -> None:
    print(f"rule    {told['rule']}")
    print(f"action  {told['action']}")
    for dest in told["destinations"]:
        print(f"to      {dest}")
    if told["delay"]:
        print(f"due     {told['delay']} s later")
    if told["log"]:
        print("log     log/rq_router.log")


def _message(name: str) -> dict[str, Any]:
    if name != "-":
        return config.read_json(Path(name))
    try:
        found = json.load(sys.stdin)
    except ValueError as error:
        raise BadInput(f"stdin is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput("stdin does not hold a JSON object")
    return found


def _default(root: Root) -> Path:
    """Return the file of the rules; the ancestor's while it was not taken over."""
    old = root.config_dir / _ANCESTORS
    return old if old.exists() and not root.router.exists() else root.router


def _read(path: Path) -> Rules:
    if path.suffix == _RUBY:
        return _read_ruby(path)
    try:
        return rules.parse(config.read_json(path))
    except BadConfig as error:
        text = str(error)
        raise BadConfig(text if str(path) in text else f"{path}: {text}") from None


def _read_ruby(path: Path) -> Rules:
    try:
        return ancestor.parse(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {error}") from None
    except BadConfig as error:
        raise BadConfig(f"{path}: {error}") from None


def _shown(found: Rules) -> str:
    return json.dumps(found.to_json(), indent=1, ensure_ascii=False)
