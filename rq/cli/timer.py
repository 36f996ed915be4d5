"""`rq timer ls`: the timers, and when they fire."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rq import client, config
from rq.cli import place, term
from rq.errors import BadConfig, Unreachable
from rq.layout import Root


def timer(root: Root, words: list[str]) -> int:
    made = term.parser("timer", "The timers, and when they fire.")
    kinds = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = kinds.add_parser("ls", help="list them")
    term.json_option(listing)
    args = made.parse_args(words)
    rows = _rows(root)
    if args.json:
        term.print_json(rows)
    elif rows:
        _table(rows)
    else:
        place.note("there are no timers: link a JSON file into timers/")
    return 0


def _rows(root: Root) -> list[dict[str, Any]]:
    try:
        reply = client.ask_timers(root.timers_socket, "status", timeout=10.0)
    except Unreachable:
        place.note(
            "timers do not answer: read from the folders"
            if place.is_running(root)
            else "RQ is not running: read from the folders"
        )
        return _from_folder(root)
    found: Mapping[str, Any] = reply[1]
    rows = [dict(one) for one in found["timers"]]
    errors: Mapping[str, str] = found.get("errors") or {}
    known = {row["name"] for row in rows}
    broken = [{"name": n, "error": e} for n, e in errors.items() if n not in known]
    return [*rows, *broken]


def _from_folder(root: Root) -> list[dict[str, Any]]:
    try:
        links = sorted(one for one in root.timers.iterdir() if one.suffix == ".json")
    except FileNotFoundError:
        return []
    try:
        fired = config.read_json(root.timers_state).get("timers") or {}
    except BadConfig:
        fired = {}
    return [_from_file(link, fired) for link in links]


def _from_file(link: Path, fired: Mapping[str, Any]) -> dict[str, Any]:
    name = link.name.partition(".")[0]
    past = fired.get(name) or {}
    row: dict[str, Any] = {"name": name, "last": past.get("last")}
    try:
        data = config.read_json(link)
        message = data.get("msg")
        row["period"] = data.get("period")
        row["dest"] = message.get("dest") if isinstance(message, dict) else None
    except BadConfig as error:
        row["error"] = str(error)
    return row


def _table(rows: list[dict[str, Any]]) -> None:
    now = time.time()
    term.table(
        ("TIMER", "PERIOD", "DEST", "DUE", "LAST", "RESULT"),
        [
            (
                one.get("name"),
                one.get("period") or "-",
                one.get("dest") or "",
                term.from_now(float(one["due"]) - now) if one.get("due") else "",
                term.moment(one.get("last")) if one.get("last") else "",
                one.get("error") or one.get("result") or "",
            )
            for one in rows
        ],
    )
