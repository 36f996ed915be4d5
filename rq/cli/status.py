"""`rq status`: what runs, what waits, what is wrong."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rq import config
from rq.access import warnings
from rq.cli import FAILED, OK, UNREACHABLE, broker_health, owner, place, term
from rq.config import admin, recipients, room
from rq.config.admin import Admin, admin_status, pause_of
from rq.errors import BadConfig
from rq.layout import Root
from rq.message import waits
from rq.outbound import past_hosts
from rq.replies import ChildView, Detail, SupervisorStatus, elsewhere, health, verdict
from rq.replies.verdict import Fault, Trouble
from rq.rpc.broker import health as broker
from rq.words.wording import duration

_COUNTED = ("prep", "que", "run", "done", "relayed", "err")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue, as `rq status` and `rq queue ls` show it."""

    name: str
    status: str
    counts: Mapping[str, int]  # messages by state; `errack`: acknowledged
    detail: Detail | None  # None: the queue does not answer
    rows: int  # of those in que: they have still to become messages

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "status": self.status,
            "counts": self.counts,
            "detail": self.detail or {},
        }


def status(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "status",
        "Show what runs, what waits, what is wrong. Exit status: 0 all is well, 1 something"
        " is wrong, 6 RQ is not running.",
    )
    term.json_option(parser)
    args = parser.parse_args(words)
    running = place.is_running(root)
    supervisor = place.supervisor_status(root) if running else SupervisorStatus()
    with owner.Reader(root) as reader:
        rows = queue_rows(reader, place.queue_names(root))
    rows = _with_child_states(rows, supervisor)
    jobs, of_broker = broker.look(root, supervisor) if running else (None, [])
    every = [*_troubles(root, running, supervisor, rows), *of_broker]
    troubles = verdict.folded(every)
    well = running and verdict.is_well(troubles)
    if args.json:
        term.print_json(
            {
                "root": str(root.path),
                "running": running,
                "well": well,
                "level": verdict.level(troubles).name,
                "trouble": [trouble.to_json() for trouble in troubles],
                "supervisor": supervisor,
                "queues": [row.to_json() for row in rows],
                "broker": jobs,
                "warnings": _access(root),
            }
        )
    else:
        headline = _headline(root, running, supervisor)
        _show(root, headline, rows, troubles, jobs)
    return OK if well else FAILED if running else UNREACHABLE


def _show(
    root: Root,
    headline: str,
    rows: Sequence[QueueRow],
    troubles: Sequence[Trouble],
    jobs: Mapping[str, str] | None,
) -> None:
    print(headline)
    _tell_hosts(root)
    if jobs is not None:
        print(broker_health.headline(root, jobs))
    if rows:
        print()
        queue_table(rows)
    for trouble in troubles:
        if trouble.fault is not Fault.NOT_RUNNING:  # the first line says it
            colour = "yellow" if trouble.kind == "warn" else "red"
            print(f"{term.colour('!', colour)} {term.plain(trouble.sentence)}")
    for row in rows:
        if row.detail is not None:
            _tell_elsewhere(row.name, row.detail)
            _tell_owed(row.name, row.detail)
    tell_rows(rows)
    for sentence in _access(root):
        print(f"{term.colour('warning:', 'yellow')} {term.plain(sentence)}")


def _troubles(
    root: Root, running: bool, supervisor: SupervisorStatus, rows: Sequence[QueueRow]
) -> Iterator[Trouble]:
    """Give what is not well, of all but the broker."""
    children = {child.get("name"): child for child in health.children(supervisor)}
    touched = admin.touched(root)
    queues = [
        _seen(root, row, children.get(row.name, {}), row.name in touched)
        for row in rows
    ]
    with contextlib.suppress(BadConfig):  # `rq doctor` says it
        yield from room.soon(root, config.read_root(root))
    yield from health.of_all(supervisor, queues, is_running=running)


def _seen(
    root: Root, row: QueueRow, child: ChildView, is_touched: bool
) -> health.Queue:
    """`is_touched`: whether there may be a file that says what a person wants."""
    wanted = admin_status(root, row.name) if is_touched else Admin.UP
    pause = pause_of(root, row.name) if is_touched else None
    return health.Queue(
        name=row.name,
        admin=str(wanted),
        wish="" if pause is None else waits.pause(**asdict(pause)),
        counts=row.counts,
        detail=row.detail,
        child=child,
        silence=f"log/queue-{row.name}.log may say why; `rq queue restart {row.name}` "
        "starts it again",
    )


def _access(root: Root) -> list[str]:
    """Return what is to be said of who may do what here, and of mail."""
    try:
        settings = config.read_root(root)
        access = warnings.of_root(root, settings, time.time())
        return [*access, *recipients.warnings(root, settings)]
    except BadConfig:  # `rq doctor` and the start of RQ say it
        return []


def _with_child_states(
    rows: Sequence[QueueRow], supervisor: SupervisorStatus
) -> list[QueueRow]:
    """Say STARTING, BACKOFF or FATAL of a queue whose owner cannot say it."""
    states = {
        child.get("name"): child.get("state") for child in health.children(supervisor)
    }
    return [
        row
        if row.detail or not states.get(row.name)
        else replace(row, status=str(states[row.name]))
        for row in rows
    ]


def queue_rows(reader: owner.Reader, names: Sequence[str]) -> list[QueueRow]:
    """Return what is known of queues."""
    every = reader.details(names)
    return [_queue_row(reader, name, detail) for name, detail in every]


def _queue_row(reader: owner.Reader, name: str, detail: Detail | None) -> QueueRow:
    return QueueRow(
        name=name,
        status=detail["status"] if detail else reader.status(name),
        counts=detail["counts"] if detail else reader.counts(name),
        detail=detail,
        rows=detail.get("rows", 0) if detail else reader.rows_to_come(name),
    )


def queue_table(rows: Sequence[QueueRow]) -> None:
    """Print queues with their counts."""
    if not rows:
        term.note("there are no queues: `rq queue new --help` says how to make one")
        return
    term.table(
        ("QUEUE", "STATUS", *(name.upper() for name in _COUNTED), "NEXT"),
        [
            (
                row.name,
                row.status,
                *(row.counts.get(name, "-") for name in _COUNTED),
                _next(row.detail),
            )
            for row in rows
        ],
    )


def tell_paused(root: Root, rows: Sequence[QueueRow]) -> None:
    """Tell by whom queues are paused, and until when."""
    for row in rows:
        pause = pause_of(root, row.name) if row.status == Admin.PAUSE else None
        if pause is not None:
            print(f"{row.name}: {term.plain(waits.pause(**asdict(pause)))}")


def tell_rows(rows: Sequence[QueueRow]) -> None:
    """Tell how many that are counted are not yet messages."""
    for row in rows:
        if row.rows:
            print(f"{row.name}: {waits.rows(row.rows)}")


def _next(detail: Detail | None) -> str:
    due = detail.get("next_due") if detail else None
    return "" if due is None else term.from_now(max(0.0, due - time.time()))


def _headline(root: Root, running: bool, supervisor: SupervisorStatus) -> str:
    if not running:
        return f"RQ is not running in {root.path}: `rq up` starts it"
    uptime = supervisor.get("uptime")
    since = f", up for {duration(float(uptime))}" if uptime is not None else ""
    return (
        f"RQ {supervisor.get('version', '?')} runs in {root.path}"
        f" (pid {supervisor.get('pid', '?')}{since})"
    )


def _tell_hosts(root: Root) -> None:
    """Tell once which internal hosts may be asked since the update."""
    relay, webhooks = past_hosts.news(root)
    if relay:
        print(
            "since the update the relay may send to these internal hosts, to which it has "
            f"sent before: {term.plain(', '.join(relay))}; `rq relay forbid HOST:PORT` "
            "takes that back"
        )
    if webhooks:
        print(
            "webhooks may be posted to these internal hosts, to which the Ruby RQ posted: "
            f"{term.plain(', '.join(webhooks))}; `allow` in config/webhooks.json lists them"
        )
    if relay or webhooks:
        past_hosts.note_shown(root)


def _tell_elsewhere(name: str, detail: Detail) -> None:
    """Tell who works on messages of a queue elsewhere, unless its trouble says it."""
    view = detail.get("elsewhere")
    if view is not None and detail.get("stalled_by") != "workers":
        said = elsewhere.at_work(view, time.time())
        print(f"{name}: {term.plain(said)} (`rq worker ls {name}`)")


def _tell_owed(name: str, detail: Detail) -> None:
    """Tell what ended messages still owe to other queues."""
    waiting = detail.get("owed", 0) - detail.get("in_doubt", 0)
    if waiting:
        what = (
            "a copy or webhook is"
            if waiting == 1
            else f"{waiting} copies or webhooks are"
        )
        print(f"{name}: {what} still to be delivered (`rq owed ls`)")
