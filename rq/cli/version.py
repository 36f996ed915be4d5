"""`rq version`: of this program, and of the one that runs."""

from __future__ import annotations

import platform

import rq
from rq.cli import place, term
from rq.layout import Root


def version(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "version", "Show the version of this program and of what runs."
    )
    term.flag(parser, "--short", "the number alone")
    term.json_option(parser)
    args = parser.parse_args(words)
    if args.short:
        print(f"rq {rq.__version__}")
        return 0
    running = _running(root)
    if args.json:
        term.print_json(
            {
                "version": rq.__version__,
                "python": platform.python_version(),
                "running": running,
            }
        )
        return 0
    print(f"rq {rq.__version__} (Python {platform.python_version()})")
    print(f"running in {root.path}: {running or 'nothing'}")
    return 0


def _running(root: Root) -> str | None:
    if not place.is_running(root):
        return None
    reply = place.ask_supervisor(root, "version")
    return str(reply[0]) if isinstance(reply, list) and reply else str(reply)
