"""The reading side of the index: opened by who asks, in the own process, read-only.

Each question takes `visible`, the queues that the asker may see (None: all). It becomes a
condition of the very SQL that counts and sums, so no sum tells of a queue that is hidden.
Words of the index's answers mean what they mean everywhere: states, causes, groups."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

import orjson

from rq import config, published
from rq.errors import BadInput, NoSuchQueue, Refused, Unreachable
from rq.index import schema, search, sums, tallies
from rq.index.rows import (
    RUNNING,
    TREND_HOURS,
    Durations,
    FailureGroup,
    Freshness,
    Hits,
    Hour,
    ListQuestion,
    Run,
    Runs,
    RunsQuestion,
    SearchQuestion,
    Sums,
)
from rq.index.schema import Cell, SqlRow
from rq.index.sums import HOUR, Values
from rq.layout import Root

MOST_DURATIONS = 10_000  # of the newest attempts, of which percentiles are made
# Columns of an attempt: of one that has ended, and of one that runs.
_COLUMNS: Mapping[str, tuple[str, str]] = {
    "row": ("id", "-id"),
    "q": ("queue", "queue"),
    "message": ("message", "id"),
    "attempt": ("attempt", "attempt"),
    "started": ("started", "started"),
    "ended": ("ended", "NULL"),
    "waited": ("waited", "NULL"),
    "ran": ("ran", "max(:now - started, 0)"),
    "outcome": ("outcome", f"'{RUNNING}'"),
    "cause": ("cause", "NULL"),
    "text": ("text", "NULL"),
    "timer": ("timer", "timer"),
}
# What pages are sorted by: the column, and what SQL makes of it.
RUN_ORDERS: Mapping[str, tuple[str, str]] = {
    "queue": ("q", "(SELECT name FROM queues WHERE id = q)"),
    "msg_id": ("message", "(SELECT msg FROM messages WHERE id = message)"),
    **{
        name: (name, name)
        for name in _COLUMNS
        if name not in ("row", "q", "message", "text")
    },
    "by": ("message", "(SELECT by FROM messages WHERE id = message)"),
}
LIST_ORDERS: Mapping[str, str] = {
    "accepted": "m.id",
    "ended": "m.changed",
    "ran": "r.ran",
    "waited": "r.waited",
    "attempt": "m.attempt",
}
HIT_ORDERS = search.ORDERS


# Of whom all messages are few: their ids are found without a look at others.
_SENT = "message IN (SELECT id FROM messages INDEXED BY sent_by WHERE by = :by)"


def _either(columns: Iterable[str], ended: str, running: str) -> str:
    """Return SQL for columns of attempts that have ended, and of those that run."""
    ends, runs = zip(*(_COLUMNS[name] for name in columns), strict=True)
    named = ", ".join(
        f"{cell} AS {name}" for cell, name in zip(ends, columns, strict=True)
    )
    return (
        f"SELECT {named} FROM runs WHERE {ended} UNION ALL "
        f"SELECT {', '.join(runs)} FROM messages WHERE state = 'run' AND {running}"
    )


# The few of a page, with names: a night may have 100,000 runs.
_NAMED = f"""
SELECT n.row, queues.name, messages.msg, n.attempt, n.started, n.ended, n.waited, n.ran,
       n.outcome, n.cause, n.text, n.timer, messages.by
FROM ({
    _either(
        _COLUMNS,
        "id IN (SELECT value FROM json_each(:rows))",
        "id IN (SELECT -value FROM json_each(:rows))",
    )
}) n JOIN messages ON messages.id = n.message JOIN queues ON queues.id = n.q"""


class Index:
    """Answers questions of one asker; close it, or use it in a `with`."""

    def __init__(self, root: Root, base: sqlite3.Connection) -> None:
        self._root = root
        self._base = base

    @classmethod
    def at(cls, root: Root) -> Self:
        """Open the index of a root. Refused: it is turned off. Unreachable: it is not
        there yet, or not one that this RQ can read."""
        if config.read_root(root).index is None:
            raise Refused(
                'the index is off: remove "index": false from config/config.json, '
                "then restart RQ"
            )
        return cls(root, schema.reader(root))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._base.close()

    # ---- how far it has read

    def freshness(self) -> Freshness:
        facts = dict(self._all("SELECT name, value FROM facts"))
        as_of = float(facts.get("as_of", 0.0))
        with contextlib.suppress(OSError):
            as_of = max(as_of, schema.beat(self._root).stat().st_mtime)
        read = float(facts.get("read", 0.0))
        is_building = not facts.get("built")
        return Freshness(
            as_of=as_of, read=read if is_building else 1.0, is_building=is_building
        )

    # ---- what ran

    def runs(self, question: RunsQuestion, visible: frozenset[str] | None) -> Runs:
        """Return the attempts of a span, and their sums."""
        if question.order not in RUN_ORDERS:
            raise BadInput(f"runs are sorted by one of {', '.join(RUN_ORDERS)}")
        with _readable(), sums.moment(self._base):
            values = self._values_of(question, visible)
            chosen = _chosen(question, visible)
            rows = self._page(question, chosen, values)
            total = self._sums(question, chosen, values)
        listed = tuple(rows[: question.limit])
        return Runs(rows=listed, sums=total, more=len(rows) > question.limit)

    def _page(self, question: RunsQuestion, chosen: str, values: Values) -> list[Run]:
        """Return the attempts of a page, and one more if there is one."""
        way = "DESC" if question.is_descending else "ASC"
        wanted = question.offset + question.limit + 1
        is_newest = question.order == "started" and question.is_descending
        if is_newest and _is_plain(question):
            values = {**values, **sums.newest(self._base, values, wanted)}
        sql = (
            f"SELECT row {chosen} ORDER BY {RUN_ORDERS[question.order][1]} {way}, "
            "started DESC, row LIMIT :limit OFFSET :offset"
        )
        return self._named([row[0] for row in self._all(sql, values)], values["now"])

    def _named(self, rows: Sequence[int], now: int) -> list[Run]:
        """Return attempts, in the order of the numbers of their rows."""
        values: Values = {"rows": _json(rows), "now": now}
        by_row = {row: _run(cells) for row, *cells in self._all(_NAMED, values)}
        return [by_row[row] for row in rows if row in by_row]

    def _values_of(
        self, question: RunsQuestion, visible: frozenset[str] | None
    ) -> Values:
        now = time.time()
        until = now if question.until is None else question.until
        queues = self._queues(question.queue, visible)
        values: Values = {
            "since": int(question.since * 1e6),
            "until": int(until * 1e6),
            "now": int(now * 1e6),
            "floor": sums.LOWEST,
            "queues": _json(queues.values()),
            "only": queues.get(question.queue or ""),
            "timer": question.timer,
            "by": question.by,
            "slow": self._slow(question, queues) if question.is_slow else "{}",
            "limit": question.limit + 1,
            "offset": question.offset,
        }
        return {**values, "newest": sums.end(self._base, values)}

    def _slow(self, question: RunsQuestion, queues: Mapping[str, int]) -> str:
        """Return from how many µs on an attempt of each queue is slow, as JSON."""
        since, until = question.since, question.until or time.time()
        hist: dict[int, list[list[int]]] = {}
        for _, queue, counts in self._counts(queues.values(), since - 86400, until):
            hist.setdefault(queue, []).append(counts["run_hist"])
        limits = {
            str(queue): published.percentile(published.added(histograms), 95)
            for queue, histograms in hist.items()
        }
        return orjson.dumps(limits).decode()

    def _sums(self, question: RunsQuestion, chosen: str, values: Values) -> Sums:
        """Count runs: by rows if only some of each hour are meant."""
        if _is_plain(question):
            total = sums.of_span(self._base, values)
        else:
            sql = f"SELECT count(*), total(outcome = 'err'), max(ran), row {chosen}"
            total = sums.NOTHING.and_also(self._all(sql, values)[0])
        slowest = self._named([] if total.row is None else [total.row], values["now"])
        return Sums(
            runs=total.runs,
            failed=total.failed,
            missed=0,
            slowest=slowest[0] if slowest else None,
        )

    # ---- what failed

    def failures(
        self, queue: str | None, visible: frozenset[str] | None
    ) -> tuple[FailureGroup, ...]:
        """Return the groups of messages in err, that with the newest failure first."""
        names = self._names(queue, visible)
        rows = self._all(
            "SELECT grp, queue, count(*), min(changed), max(changed) FROM messages "
            "INDEXED BY failing WHERE state = 'err' GROUP BY grp, queue"
        )
        by_group: dict[str, list[list[int]]] = {}
        for name, *row in rows:
            if row[0] in names:
                by_group.setdefault(name, []).append(row)
        trends = self._trends(names)
        groups = [
            self._failure_group(name, parts, names, trends.get(name, {}))
            for name, parts in by_group.items()
        ]
        return tuple(sorted(groups, key=lambda group: -group.last))

    def _failure_group(
        self,
        name: str,
        parts: list[list[int]],
        names: Mapping[int, str],
        trend: Mapping[int, int],
    ) -> FailureGroup:
        cause, wording = (
            self._all("SELECT cause, wording FROM groups WHERE name = ?", (name,))
            or [("", "")]
        )[0]
        newest = self._all(
            "SELECT queue, msg FROM messages INDEXED BY failing WHERE state = 'err' AND "
            "grp = ? AND queue IN (SELECT value FROM json_each(?)) "
            "ORDER BY changed DESC LIMIT 1",
            (name, _json(names)),
        )[0]
        return FailureGroup(
            group=name,
            wording=wording,
            cause=cause,
            queues={names[part[0]]: part[1] for part in parts},
            count=sum(part[1] for part in parts),
            first=min(part[2] for part in parts) / 1e6,
            last=max(part[3] for part in parts) / 1e6,
            trend=tuple(trend.get(back, 0) for back in range(TREND_HOURS - 1, -1, -1)),
            sample=(names[newest[0]], newest[1]),
        )

    def _trends(self, names: Mapping[int, str]) -> dict[str, dict[int, int]]:
        """Return by group how many failed how many hours ago."""
        this_hour = int(time.time() * 1e6) // HOUR
        rows = self._all(
            "SELECT grp, max(?1 - changed / ?2, 0) AS back, count(*) FROM messages "
            "INDEXED BY failing WHERE state = 'err' AND changed >= (?1 - ?3) * ?2 "
            "AND queue IN (SELECT value FROM json_each(?4)) GROUP BY grp, back",
            (this_hour, HOUR, TREND_HOURS - 1, _json(names)),
        )
        trends: dict[str, dict[int, int]] = {}
        for name, back, count in rows:
            trends.setdefault(name, {})[back] = count
        return trends

    # ---- where a message is

    def search(self, question: SearchQuestion, visible: frozenset[str] | None) -> Hits:
        """Return the messages that hold all of some words."""
        names = self._names(question.queue, visible)
        return search.hits(self._base, question, names)

    def listed(
        self, question: ListQuestion, visible: frozenset[str] | None
    ) -> tuple[str, ...]:
        """Return the ids of a page of a queue's messages, for who asks the owner then."""
        order = LIST_ORDERS.get(question.order)
        if order is None:
            raise BadInput(f"messages are sorted by one of {', '.join(LIST_ORDERS)}")
        number = self._queues(question.queue, visible).get(question.queue)
        way = "DESC" if question.is_descending else "ASC"
        rows = self._all(
            "SELECT m.msg FROM messages m LEFT JOIN runs r "
            "ON r.message = m.id AND r.attempt = m.attempt "
            f"WHERE m.queue = ? AND m.state = ? ORDER BY {order} {way}, m.id DESC "
            "LIMIT ? OFFSET ?",
            (number, str(question.state), question.limit, question.offset),
        )
        return tuple(row[0] for row in rows)

    # ---- how long

    def durations(
        self, queue: str, since: float, visible: frozenset[str] | None = None
    ) -> Durations:
        """Return how long the newest attempts of a queue ran, that ended since then."""
        number = self._queues(queue, visible).get(queue)
        rows = self._all(
            "SELECT ran FROM runs WHERE queue = ? AND ended >= ? AND ran IS NOT NULL "
            "ORDER BY ended DESC LIMIT ?",
            (number, int(since * 1e6), MOST_DURATIONS),
        )
        ran = sorted(row[0] for row in rows)
        if not ran:
            return Durations(p50=None, p95=None, count=0)
        p50, p95 = (ran[len(ran) * percent // 100] / 1e6 for percent in (50, 95))
        return Durations(p50=p50, p95=p95, count=len(ran))

    def hours(
        self,
        queue: str | None,
        since: float,
        until: float,
        visible: frozenset[str] | None = None,
    ) -> tuple[Hour, ...]:
        """Return what happened in each hour, of each queue, the oldest first."""
        names = self._names(queue, visible)
        return tuple(
            Hour(began=hour * 3600.0, part=tallies.part(counts, hour, names[number]))
            for hour, number, counts in self._counts(names, since, until)
        )

    def _counts(
        self, queues: Iterable[int], since: float, until: float
    ) -> Iterator[tuple[int, int, tallies.Counts]]:
        rows = self._all(
            "SELECT hour, queue, counts FROM hours WHERE hour >= ? AND hour <= ? "
            "AND queue IN (SELECT value FROM json_each(?)) ORDER BY hour, queue",
            (int(since // 3600), int(until // 3600), _json(queues)),
        )
        for hour, queue, counts in rows:
            yield hour, queue, cast("tallies.Counts", orjson.loads(counts))

    # ---- queues and rows

    def _queues(
        self, queue: str | None, visible: frozenset[str] | None
    ) -> dict[str, int]:
        """Return the numbers of the queues that are meant and may be seen."""
        if queue is not None and visible is not None and queue not in visible:
            raise NoSuchQueue(f"there is no queue {queue}")
        rows = self._all("SELECT name, id FROM queues")
        return {
            name: number
            for name, number in rows
            if (queue is None or name == queue) and (visible is None or name in visible)
        }

    def _names(
        self, queue: str | None, visible: frozenset[str] | None
    ) -> dict[int, str]:
        return {number: name for name, number in self._queues(queue, visible).items()}

    def _all(self, sql: str, values: Sequence[Cell] | Values = ()) -> list[SqlRow]:
        with _readable():
            return self._base.execute(sql, values).fetchall()


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Unreachable where SQLite fails within."""
    try:
        yield
    except sqlite3.Error as error:
        raise Unreachable(f"the index cannot be read now: {error}") from None


def _is_plain(question: RunsQuestion) -> bool:
    """Whether all attempts of a span and of queues are meant."""
    whose = question.timer is not None or question.by is not None
    return not (question.is_failed or question.is_slow or whose)


def _chosen(question: RunsQuestion, visible: frozenset[str] | None) -> str:
    """Return SQL for the attempts that are meant: FROM and WHERE. Only those columns are
    named that are asked for, which an index holds then."""
    names = {"row", "q", "started", "ran", "outcome", RUN_ORDERS[question.order][0]}
    if question.timer is not None:
        names.add("timer")
    if question.by is not None:
        names.add("message")
    columns = [name for name in _COLUMNS if name in names]
    runs = _either(
        columns,
        "ended >= :since AND ended < :newest "
        "AND started >= :floor AND started <= :until",
        "started <= :until",
    )
    return f"FROM ({runs}) WHERE {_conditions(question, visible)}"


def _conditions(question: RunsQuestion, visible: frozenset[str] | None) -> str:
    """Return what SQL asks of each run."""
    wanted = ["true"]
    if visible is not None:
        wanted.append("q IN (SELECT value FROM json_each(:queues))")
    if question.queue is not None:
        wanted.append("q = :only")
    if question.is_failed:
        wanted.append("outcome = 'err'")
    if question.timer is not None:
        wanted.append("timer = :timer")
    if question.by is not None:
        wanted.append(_SENT)
    if question.is_slow:
        wanted.append("ran >= json_extract(:slow, '$.\"' || q || '\"')")
    return " AND ".join(wanted)


def _run(row: SqlRow) -> Run:
    queue, msg_id, attempt, started, ended, waited, ran, *rest = row
    outcome, cause, text, timer, by = rest
    return Run(
        queue=queue,
        msg_id=msg_id,
        attempt=attempt,
        started=started / 1e6,
        ended=None if ended is None else ended / 1e6,
        waited=None if waited is None else waited / 1e6,
        ran=(ran or 0) / 1e6,
        outcome=outcome,
        cause=cause,
        text=text,
        timer=timer,
        by=by,
    )


def _json(values: Iterable[int]) -> str:
    return orjson.dumps(list(values)).decode()
