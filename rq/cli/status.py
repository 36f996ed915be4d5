"""`rq status`: what runs, what waits, what is wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rq import config
from rq.access import warnings
from rq.cli import owner, place, term
from rq.errors import BadConfig
from rq.layout import Root
from rq.outbound import earlier
from rq.wording import duration

_COUNTED = ("prep", "que", "run", "done", "relayed", "err")


def status(root: Root, words: list[str]) -> int:
    made = term.parser("status", "Show what runs, what waits, what is wrong.")
    term.json_option(made)
    args = made.parse_args(words)
    running = place.is_running(root)
    facts: Any = place.ask_supervisor(root, "status") if running else {}
    facts = facts if isinstance(facts, dict) else {}
    with owner.Reader(root) as reader:
        rows = [queue_row(reader, name) for name in place.queue_names(root)]
    _add_child_states(rows, facts)
    if args.json:
        term.print_json(
            {
                "root": str(root.path),
                "running": running,
                "supervisor": facts,
                "queues": rows,
                "warnings": _access(root),
            }
        )
        return 0
    print(_headline(root, running, facts))
    _trouble(facts)
    _tell_hosts(root)
    if rows:
        print()
        queue_table(rows)
    for row in rows:
        _warnings(row)
    for sentence in _access(root):
        print(f"{term.colour('warning:', 'yellow')} {term.plain(sentence)}")
    return 0


def _access(root: Root) -> list[str]:
    """Return what is to be said of who may do what here."""
    try:
        return warnings.of_root(root, config.read_root(root), time.time())
    except BadConfig:  # `rq doctor` and whoever starts RQ say it
        return []


def _add_child_states(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> None:
    """Say STARTING, BACKOFF or FATAL of a queue whose owner cannot say it."""
    states = {one.get("name"): one.get("state") for one in _children(facts)}
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


def _trouble(facts: Mapping[str, Any]) -> None:
    """Name the children that are not up, each with the reason."""
    for child in _children(facts):
        state = str(child.get("state", ""))
        if state in ("UP", ""):
            continue
        reason = child.get("reason") or child.get("why") or ""
        text = f"{child.get('name', '?')} is {state}"
        print(term.plain(f"  {text}: {reason}" if reason else f"  {text}"))
    for helper in ("scandir", "timers"):
        for name, text in ((facts.get(helper) or {}).get("errors") or {}).items():
            print(term.plain(f"  {helper}/{name}: {text}"))


def _tell_hosts(root: Root) -> None:
    """Tell once which internal hosts the relay may ask since the update."""
    if hosts := earlier.news(root):
        print(
            f"the relay may ask these hosts of its history: {term.plain(', '.join(hosts))}; "
            "`rq relay forbid HOST:PORT` takes that back"
        )
        earlier.told(root)


def _children(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = facts.get("children") or []
    if isinstance(found, Mapping):
        return [{"name": name, **one} for name, one in found.items()]
    return [one for one in found if isinstance(one, Mapping)]


def _warnings(row: Mapping[str, Any]) -> None:
    detail: Mapping[str, Any] = row["detail"]
    if detail.get("accepting") is False:
        reason = detail.get("closed_reason") or "no reason given"
        print(term.plain(f"{row['name']} takes no messages: {reason}"))
    elif detail.get("reason"):
        print(term.plain(f"{row['name']}: {detail['reason']}"))
    for one in detail.get("held") or []:
        print(term.plain(f"{row['name']}/{one['msg_id']} stays in run: {one['by']}"))
    _tell_owed(str(row["name"]), detail)
    lag = detail.get("lag")
    if isinstance(lag, int) and lag > 1000:
        print(f"{row['name']}: {lag} folders are still to be made or moved")


def _tell_owed(name: str, detail: Mapping[str, Any]) -> None:
    """Tell what ended messages still owe to other queues."""
    in_doubt = int(detail.get("in_doubt") or 0)
    waiting = int(detail.get("owed") or 0) - in_doubt
    if waiting:
        print(f"{name}: {waiting} copies or webhooks are still to be delivered")
    if in_doubt:
        print(f"{name}: {in_doubt} were not delivered in six days: `rq owed ls`")
