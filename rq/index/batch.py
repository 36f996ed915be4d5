"""What lines of journals make of the index: a batch in memory, and then one transaction.

What is true at all times

- A batch is a pure fold of lines over the rows that the file holds. Each row is read at
  most once in a batch and written at most once, whatever happened to it in between.
- Nothing of a batch is in the file before `write`, and all of it, with the places up to
  which the queues were read, is there after the transaction. A process that is killed in between
  reads the same lines again, over the same rows.
- A line that the file has already taken never comes here: the follower skips it by its
  number. So counts may be added.
- Texts that were put into `words` and `said` are kept in the row, for they have to be said
  again, letter by letter, when they are taken out.

What a person deletes loses its params and its texts in the very transaction that reads of
it; the row stays as `gone`, so that what ran still adds up. What has come of age does so,
too, as soon as the queue's own history does not hold its acceptance any more
(`retention`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import orjson

from rq import published
from rq.index import sums, tallies
from rq.index.schema import TICK, Cell
from rq.index.search import SEPARATOR
from rq.index.sums import Ended
from rq.message.causes import Cause
from rq.message.fields import param_text
from rq.message.group import group, wording
from rq.message.table import PARAMS
from rq.spool.record import Record, rider_record
from rq.words.nesting import Json
from rq.words.states import Event, Note, State

MOST_TEXT = 1000  # characters that are kept of what was said …
MOST_PARAM = 4000  # … and of each param
# Queues whose messages hold the stories of others: their params are not kept.
BUNDLED = frozenset({"webhook", "notice", "relay"})
# What an event makes of the attempt that it ends.
OUTCOMES: dict[str, str] = {
    Event.FINISH: "done",
    Event.RELAY: "relayed",
    Event.FAIL: "err",
    Event.RETRY: "retry",
    Event.RECOVER: "lost",
    Event.REQUEUE: "requeued",
}
CANCELLED = "cancelled"
_NOTHING: frozenset[str] = frozenset()
_ORIGINS = ("orig_msg_id", "cloned_from", "dup")  # fields that name another message
_TIMER_KEYS = ("timer/", "timer-run/")


@dataclass(slots=True, kw_only=True)
class Row:
    """A message, as a batch knows it."""

    id: int | None = None  # None: it has no row yet
    queue: int
    msg: str
    state: str
    seq: int
    accepted: int
    changed: int
    started: int | None = None
    attempt: int = 0
    count: int = 0
    cause: str | None = None
    text: str | None = None
    grp: str | None = None
    params: str | None = None
    key: str | None = None
    src: str | None = None
    timer: str | None = None
    by: str | None = None

    @property
    def words(self) -> str:
        """What is looked for and is written once."""
        if self.state == State.GONE and self.params is None:
            return ""
        parts = (self.msg, self.params, self.key, self.src)
        return "\n".join(part for part in parts if part)

    @property
    def said(self) -> str:
        """What is looked for and changes. That it succeeded is no word: all would match."""
        cause = self.cause if self.grp else None
        return "\n".join(part for part in (cause, self.text) if part)


ROW_NAMES = tuple(Row.__slots__)
_values: Callable[[Row], tuple[Cell, ...]] = attrgetter(*ROW_NAMES)
_SELECT = f"SELECT {', '.join(ROW_NAMES)} FROM messages WHERE queue = ? AND msg = ?"
_INSERT = f"INSERT INTO messages ({', '.join(ROW_NAMES)}) VALUES ({', '.join('?' * len(ROW_NAMES))})"
_UPDATE = (
    "UPDATE messages SET "
    + ", ".join(f"{name} = ?" for name in ROW_NAMES[3:])
    + " WHERE id = ?"
)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """An attempt that has ended."""

    of: Row
    attempt: int
    started: int
    ended: int
    waited: int | None
    ran: int
    outcome: str
    cause: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """The queue that lines are of."""

    number: int
    name: str
    hides: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by any queue

    def hidden(self, content: Mapping[str, object]) -> frozenset[str]:
        """Return the params of a message that are not kept: what its queue hides, and
        what those hide that it was copied or forwarded from."""
        if self.name in BUNDLED:
            return frozenset(PARAMS)
        hidden = self.hides.get(self.name, _NOTHING)
        for name in _ORIGINS:
            place = content.get(name)
            if self.hides and isinstance(place, str):
                hidden |= self.hides.get(_queue_in(place), _NOTHING)
        return hidden


@dataclass(slots=True)
class Batch:
    """Lines that were read and are not yet written."""

    base: sqlite3.Connection
    lines: int = 0
    _rows: dict[tuple[int, str], Row] = field(default_factory=dict)
    _before: dict[tuple[int, str], Row] = field(default_factory=dict)  # as in the file
    _attempts: list[Attempt] = field(default_factory=list)
    _hours: dict[tuple[int, int], tallies.Counts] = field(default_factory=dict)
    _prepared: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    _groups: dict[str, tuple[str, str]] = field(default_factory=dict)
    _silent: list[int] = field(
        default_factory=list
    )  # ids of rows that lost their texts

    # ---- taking lines

    def take(self, source: Source, record: Record) -> None:
        """Take the next line of a queue."""
        self.lines += 1
        if "msg" in record and "state" in record:
            self._take_one(source, record)
            for rider in record.get("riders", ()):
                self._take_one(source, rider_record(record, rider))
        elif "msgs" in record:
            for msg_id in record["msgs"]:
                self._take_one(source, {**record, "msg": msg_id})
        elif record["ev"] == Note.TXN and "ids" in record:
            for msg_id in record["ids"]:
                self._take_one(source, {**record, **_COMMITTED, "msg": msg_id})

    def add(self, source: Source, row: Row, content: object) -> None:
        """Add a message of which only its folder tells, unless it is there already."""
        key = (row.queue, row.msg)
        if self._row(key) is None:
            _fill(row, source, content)
            self._group(row)
            self._rows[key] = row

    def _take_one(self, source: Source, record: Record) -> None:
        """Take what a line says of a message."""
        key = (source.number, record["msg"])
        if record["state"] == State.PREP:
            self._prepare(key, record)
            return
        row = self._row(key)
        if row is None:
            row = self._accept(source, key, record)
        elif record["ev"] == Event.COMMIT and row.seq:
            return  # of a decision that has named it, too
        if row is None:
            return
        if record["ev"] == Event.RESCHEDULE and "message" in record:
            _fill(row, source, record["message"])
        self._count(source, record)
        self._end(row, record)
        self._move(row, record)

    def _prepare(self, key: tuple[int, str], record: Record) -> None:
        content = record.get("message")
        self._prepared[key] = None if content is None else orjson.dumps(content)

    def _accept(
        self, source: Source, key: tuple[int, str], record: Record
    ) -> Row | None:
        """Make the row of a message that the index does not know yet; None: it is gone."""
        content = self._take_prepared(key)
        content = record.get("message") or content
        if record["state"] == State.GONE:
            return None
        row = Row(
            queue=key[0],
            msg=key[1],
            state=State.NOWHERE,
            seq=record.get("seq", 0),
            accepted=record["ts"],
            changed=record["ts"],
            timer=_timer(record.get("key")),
        )
        _fill(row, source, content)
        self._rows[key] = row
        return row

    def _take_prepared(self, key: tuple[int, str]) -> object:
        """Return what a transaction has prepared, and forget it."""
        content = self._prepared.get(key)
        if key not in self._prepared:
            kept = self.base.execute(
                "SELECT content FROM prepared WHERE queue = ? AND msg = ?", key
            ).fetchone()
            content = kept[0] if kept else None
        if content is not None:
            self._prepared[key] = None
        return None if content is None else orjson.loads(content)

    def _row(self, key: tuple[int, str]) -> Row | None:
        row = self._rows.get(key)
        if row is None:
            values = self.base.execute(_SELECT, key).fetchone()
            if values is None:
                return None
            cells = dict(zip(ROW_NAMES, values, strict=True))
            row = self._rows[key] = Row(**cells)
            self._before[key] = Row(**cells)
        return row

    def _count(self, source: Source, record: Record) -> None:
        key = (source.number, record["ts"] // 3_600_000_000)
        counts = self._hours.get(key)
        if counts is None:
            counts = self._hours[key] = tallies.empty()
        name = published.COUNT_OF.get(record["ev"])
        if name is not None:
            tallies.count(counts["by"], name)
        if record["ev"] in OUTCOMES and record.get("cause"):
            tallies.count(counts["causes"], record["cause"])
        if record.get("run_us") is not None and record["was"] == State.RUN:
            tallies.measure(counts["run_hist"], record["run_us"])
        if record.get("wait_us") is not None and record["was"] == State.RUN:
            tallies.measure(counts["wait_hist"], record["wait_us"] or 0)

    def _end(self, row: Row, record: Record) -> None:
        """Note the attempt that a line ends."""
        outcome = _outcome(record)
        if record["was"] != State.RUN or outcome is None:
            return
        ran, ended = record.get("run_us"), record["ts"]
        begun = row.started if row.started is not None else ended
        started = begun if ran is None else ended - ran
        text = record.get("text")
        attempt = Attempt(
            of=row,
            attempt=record.get("attempt", row.attempt),
            started=started,
            ended=ended,
            waited=record.get("wait_us"),
            ran=max(0, ended - started) if ran is None else ran,
            outcome=outcome,
            cause=record.get("cause"),
            text=text[:MOST_TEXT] if text else None,
        )
        self._attempts.append(attempt)

    def _move(self, row: Row, record: Record) -> None:
        """Bring a row into the state that a line says."""
        state = record["state"]
        if state != row.state:
            row.changed = record["ts"]
        row.state = state
        row.attempt = record.get("attempt") or row.attempt
        row.count = record.get("count", row.count)
        if record["ev"] == Event.CLAIM:
            row.started = record["ts"]
        if record.get("cause"):
            row.cause = record["cause"]
            row.text = (record.get("text") or "")[:MOST_TEXT] or None
        if state == State.GONE:
            self._remove(row, record)
        else:
            self._group(row)

    def _group(self, row: Row) -> None:
        """Give a message in err its group, and another one none."""
        is_failure = row.state in (State.ERR, State.DISMISSED)
        row.grp = group(row.cause or "", row.text or "") if is_failure else None
        if row.grp is not None and row.grp not in self._groups:
            self._groups[row.grp] = (row.cause or "", wording(row.text or ""))

    def _remove(self, row: Row, record: Record) -> None:
        """Forget what a message said that a person has removed."""
        row.grp = None
        if record["ev"] == Event.EXPIRE:
            return
        row.params = row.key = row.src = row.by = row.text = None
        for attempt in self._attempts:
            if attempt.of is row:
                attempt.text = None
        if row.id is not None:
            self._silent.append(row.id)

    # ---- writing them

    def write(self) -> None:
        """Write all rows, in the transaction that is open."""
        by_age = sorted(self._rows.values(), key=lambda row: row.accepted)
        self._write_new([row for row in by_age if row.id is None])
        self._write_changed()
        self._write_attempts()
        self._write_hours()
        self._write_prepared()
        self.base.executemany(
            "INSERT OR IGNORE INTO groups VALUES (?, ?, ?)",
            [(name, *row) for name, row in self._groups.items()],
        )
        self.base.executemany(
            "UPDATE runs SET text = NULL WHERE message = ?",
            [(number,) for number in self._silent],
        )

    def _write_new(self, rows: Iterable[Row]) -> None:
        last = 0
        words, said = [], []
        for row in rows:
            last = row.id = self._free_id(row, max(row.accepted >> TICK, last + 1))
            words.append((row.id, row.words))
            if row.said:
                said.append((row.id, row.said))
        self.base.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)
        self.base.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", said)

    def _free_id(self, row: Row, wanted: int) -> int:
        """Insert a row under the first free id of its moment; return that."""
        step = 1
        while True:
            row.id = wanted
            try:
                self.base.execute(_INSERT, _values(row))
            except sqlite3.IntegrityError:
                wanted, step = wanted + step, min(2 * step, 1 << 16)
            else:
                return wanted

    def _write_changed(self) -> None:
        changed = [
            (before, row)
            for key, before in self._before.items()
            if (row := self._rows[key]) != before
        ]
        self.base.executemany(
            _UPDATE, [(*_values(row)[3:], row.id) for _, row in changed]
        )
        self.write_words(
            [(before.id, before.words, row.words) for before, row in changed]
        )
        self.write_words(
            [(before.id, before.said, row.said) for before, row in changed], "said"
        )

    def write_words(
        self, changes: Iterable[tuple[int | None, str, str]], table: str = "words"
    ) -> None:
        """Put texts in the place of others: id, before, after."""
        changes = [change for change in changes if change[1] != change[2]]
        self.base.executemany(
            f"INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', ?, ?)",
            [(number, before) for number, before, _ in changes if before],
        )
        self.base.executemany(
            f"INSERT INTO {table} (rowid, text) VALUES (?, ?)",
            [(number, after) for number, _, after in changes if after],
        )

    def _write_attempts(self) -> None:
        self.base.executemany(
            "INSERT INTO runs (message, queue, attempt, started, ended, waited, ran, "
            "outcome, cause, text, timer) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_run_values(attempt) for attempt in self._attempts],
        )
        sums.add(self.base, map(_ended, self._attempts))

    def _write_hours(self) -> None:
        for key, counts in self._hours.items():
            kept = self.base.execute(
                "SELECT counts FROM hours WHERE queue = ? AND hour = ?", key
            ).fetchone()
            total = (
                counts if kept is None else tallies.added(orjson.loads(kept[0]), counts)
            )
            self.base.execute(
                "INSERT OR REPLACE INTO hours VALUES (?, ?, ?)",
                (*key, orjson.dumps(total).decode()),
            )

    def _write_prepared(self) -> None:
        for key, content in self._prepared.items():
            self.base.execute("DELETE FROM prepared WHERE queue = ? AND msg = ?", key)
            if content is not None:
                self.base.execute(
                    "INSERT INTO prepared VALUES (?, ?, ?)", (*key, content)
                )


def _outcome(record: Record) -> str | None:
    """Return what a line makes of the attempt that it ends; None: it ends none. What a
    person has ended is a word of its own: it has not failed."""
    is_cancel = record["ev"] == Event.FAIL and record.get("cause") == Cause.CANCELLED
    return CANCELLED if is_cancel else OUTCOMES.get(record["ev"])


_COMMITTED: Record = {"ev": Event.COMMIT, "state": State.QUE, "was": State.PREP}


def _run_values(attempt: Attempt) -> tuple[Cell, ...]:
    row = attempt.of
    return (
        *(row.id, row.queue, attempt.attempt, attempt.started, attempt.ended),
        *(attempt.waited, attempt.ran, attempt.outcome, attempt.cause, attempt.text),
        row.timer,
    )


def _ended(at: Attempt) -> Ended:
    return Ended(at.of.queue, at.started, at.ended, at.ran, at.outcome)


def _fill(row: Row, source: Source, content: object) -> None:
    """Take what the content of a message says and may be kept."""
    if not isinstance(content, dict):
        return
    hidden = source.hidden(content)
    params = [
        "" if name in hidden or name not in content else _text(content[name])
        for name in PARAMS
    ]
    row.params = SEPARATOR.join(params) if any(params) else None
    row.src = content.get("src") or None
    row.by = content.get("by") or None
    key = content.get("unique_key")
    row.key = key[:MOST_TEXT] if isinstance(key, str) and key else None


def _queue_in(place: str) -> str:
    """Return the queue that a message's address names; "": it names none.

    >>> _queue_in("http://host:3333/q/mail/20260102.0304.05.006.7")
    'mail'
    """
    return place.rpartition("/q/")[2].partition("/")[0] if "/q/" in place else ""


def _text(value: Json) -> str:
    return param_text(value)[:MOST_PARAM].replace(SEPARATOR, " ")


def _timer(key: str | None) -> str | None:
    """Return the timer that has sent a message under a key.

    >>> _timer("root\\ttimer/nightly/1700000000"), _timer("me\\tmine"), _timer(None)
    ('nightly', None, None)
    """
    text = (key or "").rpartition("\t")[2]
    if not text.startswith(_TIMER_KEYS):
        return None
    return text.split("/")[1]
