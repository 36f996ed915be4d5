"""`rq show`: all about one message."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rq import wording
from rq.cli import ids, output, owner, term
from rq.layout import Root
from rq.message import PARAMS

_TOLD_ELSEWHERE = wording.TOLD | {"queue", "removed_at", *PARAMS}


def show(root: Root, words: list[str]) -> int:
    made = term.parser("show", "Show a message: what happened, why, what to do.")
    made.add_argument("id", metavar="ID")
    term.json_option(made)
    args = made.parse_args(words)
    with owner.Reader(root) as reader:
        queue, msg_id = ids.resolve(reader, args.id)
        found = reader.message(queue, msg_id)
        log = str(output.log_path(reader, queue, msg_id))
    if args.json:
        term.print_json({**found, "log": log})
        return 0
    _print_story(found)
    pairs = [*_facts(found), *_result(found), ("log", log)]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"  {name:<{width}}  {term.plain(value)}")
    _print_attachments(found.get("_attachments") or {})
    return 0


def _print_story(found: Mapping[str, Any]) -> None:
    state = str(found["state"])
    phase = f" ({found['phase']})" if found.get("phase") else ""
    print(f"{found['queue']}/{found['msg_id']}  {term.state(state)}{phase}")
    told = found.get("story") or {}
    for name, key in (("What", "what"), ("Why", "why"), ("To do", "todo")):
        if told.get(key):
            print(f"  {name + ':':<7}{term.plain(told[key])}")
    print()


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "status", found.get("status", "")
    for name in PARAMS:
        if name in found:
            yield name, found[name]
    yield "created", _created(str(found["msg_id"]))
    due = float(found.get("due") or 0)
    yield "due", f"{term.moment(due)} ({term.from_now(due - time.time())})"
    yield "attempts", found.get("attempt", 0)
    yield "retries", f"{found.get('count', 0)} of {found.get('max_count', 0)}"
    for name, value in found.items():
        if name not in _TOLD_ELSEWHERE:
            yield name, value
    if found.get("removed_at"):
        gone = float(found["removed_at"])
        yield (
            "will be removed",
            f"{term.moment(gone)} ({term.from_now(gone - time.time())})",
        )
    yield "folder", found.get("path", "")


def _created(msg_id: str) -> str:
    when = datetime.strptime(msg_id[:20], "%Y%m%d.%H%M.%S.%f").replace(tzinfo=UTC)
    return term.moment(when.timestamp())


def _result(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    result: Mapping[str, Any] = found.get("result") or {}
    yield from wording.results(result)
    if result.get("finished"):
        yield "finished", term.moment(float(result["finished"]))


def _print_attachments(attached: Mapping[str, Mapping[str, Any]]) -> None:
    if not attached:
        return
    print()
    term.table(
        ("ATTACHMENT", "SIZE", "SHA-256"),
        [
            (name, one.get("size", ""), one.get("sha256", ""))
            for name, one in sorted(attached.items())
        ],
    )
