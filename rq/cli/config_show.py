"""`rq config show`: the configuration in force, with where each value comes from."""

from __future__ import annotations

import dataclasses
from typing import Any

from rq import config as settings
from rq.cli import place, term
from rq.layout import Root

_SECRET = frozenset({"basic_auth"})


def config(root: Root, words: list[str]) -> int:
    made = term.parser("config", "Show the configuration in force.")
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    shown = kinds.add_parser("show", help="of RQ, or of a queue")
    shown.add_argument("queue", nargs="?", metavar="QUEUE")
    term.json_option(shown)
    args = made.parse_args(words)
    if args.queue:
        directory = place.queue_dir(root, args.queue)
        path = directory.config
        value: Any = settings.read_queue(directory)
    else:
        path = root.config
        value = place.root_config(root)
    written = settings.read_json(path)
    facts = {
        name: "(set)" if name in _SECRET and found else found
        for name, found in dataclasses.asdict(value).items()
    }
    if args.json:
        term.print_json({"file": str(path), "config": facts})
    else:
        print(path)
        _table(facts, written)
    return 0


def _table(facts: dict[str, Any], written: dict[str, Any]) -> None:
    term.table(
        ("KEY", "FROM", "VALUE"),
        [
            (name, "file" if name in written else "default", _shown(value))
            for name, value in facts.items()
        ],
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return str(value)
