"""`rq router`, `rq verify_rules`: rules looked at, tried and taken over, never applied."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rq import config
from rq.cli import FAILED, OK, term
from rq.cli.named import FRESH, Files
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.router import ancestor, rules
from rq.router.rules import Rules

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
        found = _read(args.path or str(_default(root)), files)
    except BadConfig as error:
        print("fail bad router rules file")
        if args.verbose:
            print(error)
        return FAILED
    print("ok")
    if args.verbose:
        print(_shown(found))
    return OK


def _verifying() -> argparse.ArgumentParser:
    made = term.parser("verify_rules", "Check routing rules, JSON or the ancestor's.")
    made.add_argument("--path", metavar="F", help="the file (config/router.json)")
    made.add_argument(
        "--verbose", action="store_true", help="show rules, or what is bad"
    )
    return made


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
        print(_shown(_read_ruby(args.path, files)))
        return OK
    found = _read(args.rules or str(root.router), files)
    told = _tried(found, _message(args.message, files))
    if args.json:
        term.print_json(told)
    else:
        _print_tried(told)
    return OK


def _parser() -> argparse.ArgumentParser:
    made = term.parser("router", "Routing rules: try them, take over the ancestor's.")
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    trying = verbs.add_parser("try", help="what would become of a message")
    trying.add_argument("message", metavar="MESSAGE.json", help="a message; - is stdin")
    trying.add_argument("--rules", metavar="F", help="the rules (config/router.json)")
    term.json_option(trying)
    taking = verbs.add_parser("import", help="print the ancestor's rules as JSON")
    taking.add_argument("path", metavar="RULES.rb")
    return made


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


def _message(name: str, files: Files) -> dict[str, Any]:
    if name != _STDIN:
        return config.json_object(_content(name, files), Path(name))
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
        raise BadConfig(f"{path} cannot be read: {error}") from None


def _shown(found: Rules) -> str:
    return json.dumps(found.to_json(), indent=1, ensure_ascii=False)
