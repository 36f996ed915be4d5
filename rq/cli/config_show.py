"""`rq config show`: the configuration in force, with where each value comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping

from rq import config as settings
from rq.cli import place, term
from rq.config.settings import QueueConfig, RootConfig
from rq.layout import Root

_SECRET = frozenset({"basic_auth"})


def config(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "config", "Show the settings in force, and where each comes from."
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    show = kinds.add_parser("show", help="the settings of RQ, or of a queue")
    show.add_argument("queue", nargs="?", metavar="QUEUE")
    term.json_option(show)
    args = parser.parse_args(words)
    if args.queue:
        directory = place.queue_dir(root, args.queue)
        path = directory.config
        value: QueueConfig | RootConfig = settings.read_queue(directory)
    else:
        path = root.config
        value = place.root_config(root)
    written = settings.read_json(path)
    values = {
        name: "(set)" if name in _SECRET and setting else setting
        for name, setting in dataclasses.asdict(value).items()
    }
    if args.json:
        term.print_json({"file": str(path), "config": values})
    else:
        print(path)
        _table(values, written)
    return 0


def _table(values: Mapping[str, object], written: Container[str]) -> None:
    term.table(
        ("KEY", "FROM", "VALUE"),
        [
            (name, "file" if name in written else "default", _text(value))
            for name, value in values.items()
        ],
    )


def _text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
