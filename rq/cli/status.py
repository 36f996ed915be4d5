"""`rq status`: what runs, what waits, what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rq import config, health
from rq.access import warnings
from rq.cli import FAILED, OK, UNREACHABLE, owner, place, term
from rq.config.admin import admin_status
from rq.errors import BadConfig
from rq.layout import Root
from rq.outbound import earlier
from rq.wording import duration

_COUNTED = ("prep", "que", "run", "done", "relayed", "err")


def status(root: Root, words: list[str]) -> int:
    made = term.parser(
        "status",
        "Show what runs, what waits, what is wrong; exit with 1 if something is, with 6"
        " if RQ is not running.",
    )
    term.json_option(made)
    args = made.parse_args(words)
    running = place.is_running(root)
    facts: Any = place.ask_supervisor(root, "status") if running else {}
    facts = facts if isinstance(facts, dict) else {}
    with owner.Reader(root) as reader:
        rows = [queue_row(reader, name) for name in place.queue_names(root)]
    _add_child_states(rows, facts)
    found = list(_trouble(root, running, facts, rows))
    well = running and all(one.passing for one in found)
    if args.json:
        term.print_json(
            {
                "root": str(root.path),
                "running": running,
                "well": well,
                "trouble": [one.to_json() for one in found],
                "supervisor": facts,
                "queues": rows,
                "warnings": _access(root),
            }
        )
    else:
        _show(root, _headline(root, running, facts), rows, found)
    return OK if well else FAILED if running else UNREACHABLE


def _show(
    root: Root,
    headline: str,
    rows: list[dict[str, Any]],
    found: Sequence[health.Trouble],
) -> None:
    print(headline)
    _tell_hosts(root)
    if rows:
        print()
        queue_table(rows)
    for one in found:
        colour = "yellow" if one.passing or one.kind == "warn" else "red"
        print(f"{term.colour('!', colour)} {term.plain(one.sentence)}")
    for row in rows:
        _tell_owed(str(row["name"]), row["detail"])
    for sentence in _access(root):
        print(f"{term.colour('warning:', 'yellow')} {term.plain(sentence)}")


def _trouble(
    root: Root, running: bool, facts: Mapping[str, Any], rows: list[dict[str, Any]]
) -> Iterator[health.Trouble]:
    """Give what is not well: what keeps messages from going on, then what has failed."""
    known = {one.get("name"): one for one in health.children(facts)}
    yield from health.of_helpers(facts)
    for row in rows:
        name = row["name"]
        if row["detail"]:
            yield from health.of_queue(name, row["detail"])
        elif running:
            admin, child = str(admin_status(root, name)), known.get(name, {})
            why = (
                f"log/queue-{name}.log may say why; `rq queue restart {name}` starts it "
                "again"
            )
            yield from health.of_silent(name, admin, child, why)
    for row in rows:
        yield from health.of_errors(row["name"], row["counts"])


def _access(root: Root) -> list[str]:
    """Return what is to be said of who may do what here."""
    try:
        return warnings.of_root(root, config.read_root(root), time.time())
    except BadConfig:  # `rq doctor` and whoever starts RQ say it
        return []


def _add_child_states(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> None:
    """Say STARTING, BACKOFF or FATAL of a queue whose owner cannot say it."""
    states = {one.get("name"): one.get("state") for one in health.children(facts)}
    for row in rows:
        if not row["detail"] and states.get(row["name"]):
            row["status"] = states[row["name"]]


def queue_row(reader: owner.Reader, name: str) -> dict[str, Any]:
    """Return what is known of a queue; `detail` is {} when nobody answers."""
    reply = reader.answer(name, "detail")
    detail: dict[str, Any] = {}
    if isinstance(reply, list) and len(reply) > 1 and reply[0] == "ok":
        detail = reply[1]
    return {
        "name": name,
        "status": detail.get("status") or reader.status(name),
        "counts": detail.get("counts") or reader.counts(name),
        "detail": detail,
    }


def queue_table(rows: list[dict[str, Any]]) -> None:
    """Print queues with their counts."""
    if not rows:
        place.note("there are no queues: link a directory with `run` into scandir/")
        return
    term.table(
        ("QUEUE", "STATUS", *(name.upper() for name in _COUNTED), "NEXT"),
        [
            (
                row["name"],
                row["status"],
                *(row["counts"].get(name, "-") for name in _COUNTED),
                _next(row["detail"]),
            )
            for row in rows
        ],
    )


def _next(detail: Mapping[str, Any]) -> str:
    due = detail.get("next_due")
    return "" if due is None else term.from_now(max(0.0, float(due) - time.time()))


def _headline(root: Root, running: bool, facts: Mapping[str, Any]) -> str:
    if not running:
        return f"RQ is not running in {root.path}: `rq up` starts it"
    uptime = facts.get("uptime")
    since = f", up for {duration(float(uptime))}" if uptime is not None else ""
    return (
        f"RQ {facts.get('version', '?')} runs in {root.path}"
        f" (pid {facts.get('pid', '?')}{since})"
    )


def _tell_hosts(root: Root) -> None:
    """Tell once which internal hosts the relay may ask since the update."""
    if hosts := earlier.news(root):
        print(
            f"the relay may ask these hosts of its history: {term.plain(', '.join(hosts))}; "
            "`rq relay forbid HOST:PORT` takes that back"
        )
        earlier.note_shown(root)


def _tell_owed(name: str, detail: Mapping[str, Any]) -> None:
    """Tell what ended messages still owe to other queues."""
    waiting = int(detail.get("owed") or 0) - int(detail.get("in_doubt") or 0)
    if waiting:
        print(f"{name}: {waiting} copies or webhooks are still to be delivered")
