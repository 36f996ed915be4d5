"""`rq show`: all about one message; `rq why`: what a waiting message waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rq.cli import ids, output, owner, place, term
from rq.layout import Root
from rq.message import limits, lineage, next_attempt
from rq.message.causes import Cause
from rq.message.table import APART, PARAMS
from rq.replies import AttachmentView, AttemptRow, AttemptsView, MessageView, health
from rq.words import wording
from rq.words.states import State

_LOOKED_AT = 1000  # messages of a queue, those that run next
_SHOWN_APART = APART | {"queue"}


def show(root: Root, words: list[str]) -> int:
    parser = term.parser("show", "Show a message: what happened, why, what to do.")
    parser.add_argument("id", metavar="ID", help=term.ID)
    term.json_option(parser)
    args = parser.parse_args(words)
    with owner.Reader(root) as reader:
        queue, msg_id = ids.resolve(reader, args.id)
        message = reader.message(queue, msg_id)
        kept = _attempts(reader, queue, message)
        log = str(output.log_path(reader, queue, msg_id))
    if args.json:
        term.print_json({**message, "log": log, "attempts": kept["attempts"]})
        return 0
    _print_story(message)
    facts = [*_facts(message), *_result(message), ("log", log)]
    pairs = [(term.plain(name), value) for name, value in facts]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"  {name:<{width}}  {term.plain(value)}")
    _print_attempts(kept)
    _print_attachments(message.get("_attachments") or {})
    return 0


def _attempts(reader: owner.Reader, queue: str, message: MessageView) -> AttemptsView:
    """Return what is kept of the attempts on a message that was tried."""
    if not message.get("attempt"):
        return {"attempts": [], "left_out": 0}
    return reader.attempts(queue, message["msg_id"])


def _print_attempts(kept: AttemptsView) -> None:
    """Tell of each attempt, when there was more than one."""
    rows = kept["attempts"]
    if len(rows) < 2:
        return
    print()
    term.table(
        ("ATTEMPT", "STARTED", "RAN", "HOW IT ENDED"),
        [
            (row["attempt"], term.moment(row.get("started")), _ran(row), row["how"])
            for row in rows
        ],
    )
    if kept["left_out"]:
        term.note(f"{kept['left_out']} attempts between are not kept")


def _ran(row: AttemptRow) -> str:
    run_us = row.get("run_us")
    return "" if run_us is None else wording.duration(run_us / 1e6)


def _print_story(message: MessageView) -> None:
    is_cancelled = (
        message["state"] == State.ERR
        and message["result"].get("cause") == Cause.CANCELLED
    )
    phase = Cause.CANCELLED if is_cancelled else message.get("phase")
    phase = f" ({phase})" if phase else ""
    state = term.state(message["state"])
    print(f"{message['queue']}/{message['msg_id']}  {state}{phase}")
    story: Mapping[str, object] = message.get("story") or {}
    for name, key in (("What", "what"), ("Why", "why"), ("To do", "todo")):
        if story.get(key):
            print(f"  {name + ':':<7}{term.plain(story[key])}")
    print()


def _facts(message: MessageView) -> Iterator[tuple[str, object]]:
    fields: Mapping[str, object] = message
    yield "status", _status(message)
    for name in PARAMS:
        if name in fields:
            yield name, fields[name]
    yield "created", _created(message["msg_id"])
    yield "due", _when(float(message.get("due") or 0))
    yield "attempts", message.get("attempt", 0)
    if again := message.get("next_attempt"):
        yield "next", again["text"]
    yield "retries", next_attempt.retries(message)
    yield from limits.of_view(message)
    if origin := lineage.origin(fields.get(lineage.MADE_FROM)):
        yield origin.label, lineage.text(origin)
    for name, value in fields.items():
        if name not in _SHOWN_APART | lineage.fields_of_kin(fields):
            yield name, value
    if message.get("removed_at"):
        yield "will be removed", _when(float(message["removed_at"]))
    yield "folder", message.get("path", "")


def _status(message: MessageView) -> str:
    state, dash, said = str(message.get("status", "")).partition(" - ")
    return f"{state}{dash}{wording.in_list(message['state'], said)}"


def _when(epoch: float) -> str:
    return f"{term.moment(epoch)} ({term.from_now(epoch - time.time())})"


def _created(msg_id: str) -> str:
    when = datetime.strptime(msg_id[:20], "%Y%m%d.%H%M.%S.%f").replace(tzinfo=UTC)
    return term.moment(when.timestamp())


def _result(message: MessageView) -> Iterator[tuple[str, object]]:
    result = message.get("result") or {}
    if message["state"] == State.RUN:
        yield from wording.at_work(result, time.time())
    yield from wording.results(result)
    finished = result.get("finished")
    if isinstance(finished, int | float):
        yield "finished", term.moment(finished)


def _print_attachments(attachments: Mapping[str, AttachmentView]) -> None:
    if not attachments:
        return
    print()
    term.table(
        ("ATTACHMENT", "SIZE", "SHA-256"),
        [
            (name, entry.get("size", ""), entry.get("sha256", ""))
            for name, entry in sorted(attachments.items())
        ],
    )


# ---- rq why


def why(root: Root, words: list[str]) -> int:
    parser = term.parser("why", "Say why messages wait, and what to do.")
    meant = "of a message, or the name of a queue: all that wait in it"
    parser.add_argument("ids", nargs="+", metavar="ID", help=meant)
    term.json_option(parser)
    args = parser.parse_args(words)
    queues = set(place.queue_names(root))
    with owner.Reader(root) as reader:
        answers = [
            _why_in(reader, text) if text in queues else _why_of(reader, text)
            for text in args.ids
        ]
    if args.json:
        term.print_json([answer.value for answer in answers])
        return 0
    for answer in answers:
        for line in answer.lines:
            print(term.plain(line))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    value: object  # for programs
    lines: list[str]


def _why_of(reader: owner.Reader, text: str) -> _Answer:
    """Say why one message waits."""
    message = reader.message(*ids.resolve(reader, text))
    waits, story = message.get("_why"), message["story"]
    said = story["what"] if waits is None else waits["text"]
    lines = [f"{message['queue']}/{message['msg_id']}: {said}"]
    if waits is not None and not story["todo"].startswith("Nothing"):
        lines.append(f"  {story['todo']}")
    return _Answer(value=waits, lines=lines)


def _why_in(reader: owner.Reader, queue: str) -> _Answer:
    """Say why the messages of a queue wait: how many for which reason, and what is wrong
    with the queue itself."""
    rows = reader.messages(queue, State.QUE, _LOOKED_AT)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "why" in row:
            reasons.setdefault(row["why"]["reason"], []).append(row["why"]["text"])
    detail = reader.detail(queue)
    trouble = [] if detail is None else list(health.of_queue(queue, detail))
    many = "a message waits" if len(rows) == 1 else f"{len(rows):,} messages wait"
    if len(rows) == _LOOKED_AT:
        many = f"of the {_LOOKED_AT:,} that run next"
    lines = [f"{queue}: {many if rows else 'no message waits'}"]
    lines += [f"  ! {item.sentence}" for item in trouble]
    lines += [f"  {len(texts):,}: {texts[0]}" for texts in reasons.values()]
    value = {
        "queue": queue,
        "looked_at": len(rows),
        "reasons": [
            {"reason": reason, "messages": len(texts), "first": texts[0]}
            for reason, texts in reasons.items()
        ],
        "trouble": [item.to_json() for item in trouble],
    }
    return _Answer(value=value, lines=lines)
