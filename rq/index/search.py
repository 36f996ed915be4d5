"""Finds messages by parts of what they say.

A message's text stands in two places of the index: `words`, which is written once, and
`said`, which changes with its ends. A message is meant if each word stands in one of them.
So there are as many streams of matches as there are words, and one more: those with all
words in `words`, and for each word those that have it in `said` and the others anywhere.
Each stream comes in the order of rowids, which is that of acceptance; merged, the first page
costs what it shows, however many match."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from rq.errors import BadInput, Unreachable
from rq.index.rows import MOST_HITS, Hit, Hits, SearchQuestion
from rq.index.schema import TICK, Cell, SqlRow
from rq.message.table import PARAMS
from rq.words.states import State

LEAST = 3  # characters of a word that can be looked for
MOST_WORDS = 16
SEPARATOR = "\x1f"  # between the params of a message
ORDERS: Mapping[str, str] = {
    "accepted": "m.id",
    "changed": "m.changed",
    "queue": "q.name",
    "msg_id": "m.msg",
    "state": "m.state",
    "cause": "m.cause",
    "attempt": "m.attempt",
    "count": "m.count",
}
_COLUMNS = (
    "q.name, m.msg, m.state, m.accepted, m.changed, m.attempt, m.count, m.cause, m.text, "
    "m.grp, m.params, m.key, m.src, m.timer, m.by"
)


def hits(
    base: sqlite3.Connection, question: SearchQuestion, names: Mapping[int, str]
) -> Hits:
    """Return the messages that are meant, of the queues with these numbers."""
    if question.order not in ORDERS:
        raise BadInput(f"messages are sorted by one of {', '.join(ORDERS)}")
    words = [_quoted(word) for word in question.words]
    if len(words) > MOST_WORDS:
        raise BadInput(f"at most {MOST_WORDS} words can be looked for")
    newest_first = question.order != "accepted" or question.is_descending
    try:
        streams = _streams(base, question, words, names, newest_first)
        ids = [*itertools.islice(_merged(streams, newest_first), MOST_HITS + 1)]
        end = question.offset + question.limit
        rows = _page(base, question, ids[:MOST_HITS])
    except sqlite3.Error as error:
        raise Unreachable(f"the index cannot be read now: {error}") from None
    count = min(len(ids), MOST_HITS)
    return Hits(rows=tuple(map(_hit, rows)), more=len(ids) > end, count=count)


def _quoted(word: str) -> str:
    """Return a word as FTS5 looks for it."""
    if len(word) < LEAST:
        raise BadInput(f"{word!r} is too short: a word has {LEAST} characters or more")
    return '"{}"'.format(word.replace('"', '""').replace("\0", ""))


def _streams(
    base: sqlite3.Connection,
    question: SearchQuestion,
    words: Sequence[str],
    names: Mapping[int, str],
    newest_first: bool,
) -> list[Iterator[int]]:
    """Return the matches, each stream in the order that is wanted."""
    conditions, values = _conditions(question, names)
    way = "DESC" if newest_first else "ASC"

    def stream(source: str, more: Iterable[str]) -> Iterator[int]:
        """Give the ids of a source; `more`: values of it, before those of all."""
        statement = f"SELECT m.id FROM {source} AND {conditions} ORDER BY {{}} {way}"
        ordered = statement.format("m.id" if source.startswith("m") else "f.rowid")
        return (row[0] for row in base.cursor().execute(ordered, (*more, *values)))

    if not words:
        way_in = " INDEXED BY sent_by" if question.by is not None else ""
        return [stream(f"messages m{way_in} WHERE 1", ())]
    join = "{} f CROSS JOIN messages m ON m.id = f.rowid WHERE f.text MATCH ?"
    streams = [stream(join.format("words"), [" AND ".join(words)])]
    for word in words:
        others = [other for other in words if other is not word]
        anywhere = "".join(_ANYWHERE for _ in others)
        twice = [value for other in others for value in (other, other)]
        streams.append(stream(join.format("said") + anywhere, [word, *twice]))
    return streams


_ANYWHERE = (
    " AND (EXISTS (SELECT 1 FROM words w WHERE w.text MATCH ? AND w.rowid = m.id)"
    " OR EXISTS (SELECT 1 FROM said s WHERE s.text MATCH ? AND s.rowid = m.id))"
)


def _conditions(
    question: SearchQuestion, names: Mapping[int, str]
) -> tuple[str, list[Cell]]:
    """Return what SQL asks of each message, and its values."""
    wanted = ["m.queue IN (SELECT value FROM json_each(?))"]
    values: list[Cell] = [orjson.dumps(list(names)).decode()]
    if question.state is not None:
        wanted.append("m.state = ?")
        values.append(str(question.state))
    if question.by is not None:
        wanted.append("m.by = ?")
        values.append(question.by)
    if question.since is not None:
        since = int(question.since * 1e6)
        wanted += ["m.accepted >= ?", "m.id >= ?"]
        values += [since, since >> TICK]
    return " AND ".join(wanted), values


def _merged(streams: Sequence[Iterator[int]], newest_first: bool) -> Iterator[int]:
    """Give each id once."""
    merged = heapq.merge(*streams, reverse=newest_first)
    return (number for number, _ in itertools.groupby(merged))


def _page(
    base: sqlite3.Connection, question: SearchQuestion, ids: Sequence[int]
) -> list[SqlRow]:
    """Return the rows of the page that is wanted, in order."""
    first, end = question.offset, question.offset + question.limit
    by_acceptance = question.order == "accepted"
    if by_acceptance:
        ids, first, end = ids[first:end], 0, question.limit
    way = "DESC" if question.is_descending else "ASC"
    return base.execute(
        f"SELECT {_COLUMNS} FROM json_each(?) i CROSS JOIN messages m ON m.id = i.value "
        f"JOIN queues q ON q.id = m.queue ORDER BY {ORDERS[question.order]} {way}, "
        "m.id DESC LIMIT ? OFFSET ?",
        (orjson.dumps(ids).decode(), end - first, first),
    ).fetchall()


def _hit(row: SqlRow) -> Hit:
    queue, msg_id, state, accepted, changed, attempt, count, *rest = row
    cause, text, group, params, key, src, timer, by = rest
    return Hit(
        queue=queue,
        msg_id=msg_id,
        state=State(state),
        accepted=accepted / 1e6,
        changed=changed / 1e6,
        attempt=attempt,
        count=count,
        cause=cause,
        text=text,
        group=group,
        params=params_of(params),
        key=key,
        src=src,
        timer=timer,
        by=by,
    )


def params_of(text: str | None) -> dict[str, str]:
    """Return the params of a message, from how they are kept.

    >>> params_of(SEPARATOR.join(("a", "", "c", "")))
    {'param1': 'a', 'param3': 'c'}
    """
    values = (text or "").split(SEPARATOR)
    return {name: value for name, value in zip(PARAMS, values, strict=False) if value}
