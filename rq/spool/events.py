"""Events: one line in the open group of the journal, and memory that follows it.

What is true at all times

- Memory is the fold of all lines that were appended, durable or not. Whatever an owner
  remembers can be made again from the lines: `fire` and a start take it from the same
  line, by the same functions (`News.take`, `Bulks.take`, `Transactions.take`, `held_in`).
  Who wants to remember more gives the line a field, and makes the memory from that field.
- An event is a row of `states.TRANSITIONS`, fired by a role that may. There is no other
  way to change the state of a message. One message has its event in `fire` and nowhere
  else. A rider, an equal message that ends with the one that runs for both (coalescing),
  ends in that one's line.
- Numbers have no gaps: an event takes its `seq` when its line has been made, so one whose
  line could not be made uses up none.
- A message that a thread works on is `busy`, and one that an open transaction holds waits
  for its decision: neither has an event of its own meanwhile.

The order within `fire` is the point of it. First the row is looked up and the line is
made: a wrong state, a role that may not, or a value that is no JSON fails here, and has
changed nothing. Then the line is appended, and from there on nothing may fail: an error
between the line and the last change of memory would leave an owner that does not know its
own journal. So all that follows are assignments, and additions to dicts that are there.

What may happen

- A kill before the group is written: the line never was, and no client has an answer.
- A kill after the write, before the sync: the line stands. A power cut: it may. Both are
  right, for nothing was answered yet.
- A write or a sync fails: the same line, with the same `seq`, goes to another segment. It
  is not fired again, and memory need not be taken back.

Many messages by one line (the decision of a transaction, retention) is the same: the line
names their ids, then memory follows for each (`all_changed`, `expire`). A folder in
`prep/` that belongs to no transaction has no line at all: it is not promised, and a start
sees whether it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Unpack, cast

import orjson

from rq.errors import Busy, WrongState
from rq.files import durable
from rq.journal.writer import DryRun, Journal
from rq.layout import MSG, QueueDir, folder
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.message.rank import Rank, prior
from rq.spool import attempt_files, folders, outbox
from rq.spool.entry import Entry, came
from rq.spool.figures import Figures
from rq.spool.lag import Lag
from rq.spool.memory import Accepted, Memory
from rq.spool.news import SUCCESS
from rq.spool.record import Facts, More, NoteFields, OutEntry, Record
from rq.spool.status import status_file
from rq.words.states import LIVE, Event, Note, Role, State, next_state

MOST_ASKERS = 1_000_000  # messages of whose end queues want hints
STANDINGS_IN_LINE = 100  # messages that a line tells of for which others wait


class Events:
    """Fires the events of one queue."""

    def __init__(
        self,
        queue: QueueDir,
        dir_fd: int,
        journal: Journal | DryRun,
        memory: Memory,
        lagging: Lag,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._name = queue.name
        self._dir_fd = dir_fd
        self._journal = journal
        self._memory = memory
        self._lagging = lagging
        self._clock = clock
        self.figures = Figures()
        self._watches: list[dict[str, State]] = []
        self._at_end: dict[str, list[Callable[[], None]]] = {}  # by msg_id
        # Queues that have asked for the end of a message, by msg_id; and what each is to
        # be told of, once that is durable. Hints alone, so kept in memory alone.
        self._askers: dict[str, tuple[str, ...]] = {}
        self.hints: dict[str, dict[str, None]] = {}

    @contextlib.contextmanager
    def watched_by(self, touched: dict[str, State]) -> Iterator[None]:
        """Note in `touched` in which state each message was before it changed meanwhile."""
        self._watches.append(touched)
        try:
            yield
        finally:
            # That very one: two that have noted the same so far are equal.
            self._watches = [watch for watch in self._watches if watch is not touched]

    def fire(
        self,
        msg_id: str,
        event: Event,
        role: Role,
        *,
        message: Message | None = None,
        facts: Facts | None = None,
        spare: Message | None = None,
        **more: Unpack[More],
    ) -> Record:
        """Change the state of a message: one line in the journal, and memory.

        `message` is its new content, if that changed. `facts` tell of its last attempt
        and go into the line and its file `status`. `spare` makes the folder again if a
        hand has removed it. `more` are further fields of the line. Returns the line.
        """
        entry, source = self._entry(msg_id, event)
        target = next_state(source, event, role)
        now = self._clock()
        record: Record = {
            "ts": int(now * 1e6),
            "queue": self._name,
            "msg": msg_id,
            "ev": event,
            "state": target,
            "was": source,
        }
        body, due = _add_content(record, entry, message)
        rank = _add_turn(record, entry, message, due)
        if more:
            _add_more(record, more)
        has_keys = self._memory.uniques.keys is not None
        unique = self._unique(record, entry, message) if has_keys else None
        status, ended = None, None
        if facts is not None:
            record.update(cast("Record", facts))
            status = status_file(record)
            ended = attempt_files.number_of(record)
        # What cannot be written fails here, and has changed nothing.
        seq = record["seq"] = self._journal.append(record)
        entry.written = False
        entry.body, entry.due = body, due
        if status is not None:
            _add_attempt(entry, status, ended)
        entry.count, entry.attempt = record["count"], record["attempt"]
        self._follow_key(record, entry, source, unique)
        if message is not None:
            entry.said, entry.rank = seq, rank
            wait = message.wait if message.after else None
            entry.hold_back(message.held is not None, wait)
        if target is State.QUE:
            entry.seq, entry.since = seq, came(due, now)
        if spare is not None:
            self._lagging.keep_spare(msg_id, spare)
        if more or event in SUCCESS:
            self._remember(record, now, entry)
        self.figures.take(record)
        self.changed(msg_id, entry, source, target)
        return record

    def _unique(
        self, record: Record, entry: Entry, message: Message | None
    ) -> str | None:
        """Return the unique key of a message; say it where a start could not find it
        out: who was accepted may have ended by then."""
        uniques = self._memory.uniques
        is_new = message is not None and record["state"] in (State.PREP, State.QUE)
        unique = uniques.key_in(message) if message and is_new else entry.unique
        withdrawn = record["ev"] == Event.DISCARD and record["was"] == State.QUE
        is_told = withdrawn or record["ev"] == Event.COMMIT
        if uniques.windowed and unique and is_told and "unique" not in record:
            record["unique"] = unique
        return unique

    def _follow_key(
        self, record: Record, entry: Entry, source: State, unique: str | None
    ) -> None:
        """Give a message the unique key that its line was written with."""
        if unique == entry.unique and "unique" not in record:
            return
        uniques, msg_id = self._memory.uniques, record["msg"]
        if entry.unique and entry.unique != unique:
            uniques.moved(entry.unique, msg_id, source, State.NOWHERE)
        entry.unique = unique
        if record.get("unique") and record["ev"] == Event.COMMIT:
            uniques.accepted(record["unique"], msg_id, record["ts"] / 1e6)

    def _entry(self, msg_id: str, event: Event) -> tuple[Entry, State]:
        entry = self._memory.entries.get(msg_id)
        if entry is not None:
            if entry.busy:
                raise Busy(f"message {msg_id} is being worked on; ask again")
            if event is not Event.PREPARE:
                self._check_free(msg_id)
            return entry, entry.state
        if event in (Event.COMMIT, Event.PREPARE):
            # An id that is not known here was never given to another message, and the
            # door asks `free_id` first: no look at the disk is needed.
            return Entry(State.NOWHERE, None, 0.0, 0), State.NOWHERE
        state = folders.find_final(self._dir_fd, msg_id)
        if state is None:
            return Entry(State.NOWHERE, None, 0.0, 0), State.NOWHERE
        status = folders.read_status_at(folder(state, msg_id), self._dir_fd)
        count, attempt = status.get("count", 0), status.get("attempt", 0)
        return Entry(state, state, 0.0, 0, count, attempt), state

    def _check_free(self, msg_id: str) -> None:
        """A message of a transaction goes with the others or not at all."""
        txn = self._memory.txns.of(msg_id)
        if txn is not None:
            raise WrongState(
                f"transaction {txn.txn_id} holds message {msg_id}: commit or abort that"
            )

    def _remember(self, record: Record, now: float, changed: Entry) -> None:
        """Remember the key of a line, what it owes, and what it says of a lease or of a
        bulk."""
        self._memory.news.take(record)
        if "results" in record:
            changed.results = record["attempt"], tuple(record["results"])
        if "lease" in record:
            self._memory.take_lease(record)
        if "bulk" in record:
            self._memory.bulks.take(record)
        if "row" in record:
            self._memory.txns.take(record)
        key = record.get("key")
        if key is not None:
            accepted = Accepted(record["msg"], now, record.get("body", ""))
            self._memory.remember_key(key, accepted)
        if "out" in record:
            self._owe(record, now)

    def _owe(self, record: Record, now: float) -> None:
        for number, entry in enumerate(outbox.unpacked(record["out"])):
            of, journal = (record["seq"], number), self._journal.journal_id
            owed = outbox.owed(entry, record.get("msg", ""), now, journal, of)
            self._memory.owed[of] = owed

    # ---- memory

    def changed(self, msg_id: str, entry: Entry, source: State, target: State) -> None:
        """Change memory after an event that is in the journal."""
        entry.state = target
        if source is State.RUN and self._memory.leases:
            self._memory.leases.pop(msg_id, None)
        self._memory.counts.moved(source, target)
        if entry.unique:
            self._memory.uniques.moved(entry.unique, msg_id, source, target)
        for watch in self._watches:
            watch.setdefault(msg_id, source)
        self._memory.entries[msg_id] = entry
        self._lagging.add(msg_id, entry)
        if self._askers and msg_id in self._askers:
            self._hint(msg_id, source, target)
        if self._at_end and target not in LIVE:
            for call in self._at_end.pop(msg_id, ()):
                call()

    def _hint(self, msg_id: str, source: State, target: State) -> None:
        if source not in LIVE or target not in LIVE:
            for queue in self._askers.pop(msg_id):
                self.hints.setdefault(queue, {})[msg_id] = None

    def want_hint(self, msg_id: str, queue: str) -> None:
        """Remember that a queue wants to hear when a message has ended, or runs again."""
        queues = self._askers.get(msg_id, ())
        if queue not in queues and len(self._askers) < MOST_ASKERS:
            self._askers[msg_id] = (*queues, queue)

    def all_changed(
        self, ids: Sequence[str], source: State, target: State, seq: int
    ) -> None:
        """Change memory after one event of many messages that are remembered."""
        now = self._clock()
        entries = [self._memory.entries[msg_id] for msg_id in ids]
        for entry in entries:
            entry.state, entry.seq, entry.since = target, seq, now
            entry.written = False
        for msg_id in ids if self._watches else ():
            self.tell(msg_id, source)
        for msg_id, entry in zip(ids, entries, strict=True):
            if entry.unique:
                self._memory.uniques.moved(entry.unique, msg_id, source, target)
        if target is State.QUE:
            self.figures.accepted += len(ids)
        self._lagging.add_all(ids, entries)
        self._memory.counts.moved(source, target, len(ids))

    def tell(self, msg_id: str, source: State) -> None:
        """Tell those who watch in which state a message was before it changed."""
        for watch in self._watches:
            watch.setdefault(msg_id, source)

    # ---- messages in prep: a folder alone, or in a transaction by a line

    def prepare(self, message: Message) -> None:
        """Make a folder in prep; not yet promised, so no line."""
        msg_id, body = message.msg_id, message.encode_new()
        path = folder(State.PREP, msg_id)
        durable.make_dir(path, self._dir_fd)
        try:
            durable.write_new(f"{path}/{MSG}", body, self._dir_fd)
        except OSError:
            self._take_back(msg_id)
            raise
        next_state(State.NOWHERE, Event.PREPARE, Role.CREATOR)
        entry = Entry(State.PREP, State.PREP, message.due, 0, since=self._clock())
        entry.rank = prior(message.priority, entry.rank)
        self._memory.entries[msg_id] = entry
        self._memory.counts.moved(State.NOWHERE, State.PREP)
        self.tell(msg_id, State.NOWHERE)

    def _take_back(self, msg_id: str) -> None:
        """Remove the half-made folder of a message that is refused; tried again until
        the disk allows it. No line tells of it: a start sees that it is half made."""
        entry = Entry(State.GONE, State.PREP, 0.0, 0)
        self._memory.entries[msg_id] = entry
        self._lagging.add(msg_id, entry)

    def prepare_in(self, txn_id: str, message: Message) -> None:
        """Prepare a message in a transaction, or give it new content; the line holds
        the whole of it, for the decision will name its id only."""
        msg_id, event = message.msg_id, Event.PREPARE
        line = self.fire(msg_id, event, Role.CREATOR, message=message, txn=txn_id)
        self._memory.entries[msg_id].since = self._clock()
        self._memory.txns.take(line)
        self._lagging.put_off(msg_id)

    # ---- who waits for an end

    @property
    def awaited(self) -> int:
        """How many messages there are whose end a client waits for."""
        return len(self._at_end)

    def await_end(self, msg_id: str, call: Callable[[], None]) -> None:
        """Call once a message has ended or is gone; that may not be durable by then."""
        self._at_end.setdefault(msg_id, []).append(call)

    def forget_end(self, msg_id: str, call: Callable[[], None]) -> None:
        """Call no more, if that was not done."""
        calls = self._at_end.get(msg_id, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            self._at_end.pop(msg_id, None)

    # ---- lines of many messages, or of none

    def expire(self, state: State, ids: Iterable[str]) -> list[str]:
        """Remove messages that have ended in `state`, by one line; return which.

        Those that have moved on since they were listed stay.
        """
        target = next_state(state, Event.EXPIRE, Role.CLEANER)
        ended = [msg_id for msg_id in ids if self._rests(msg_id, state)]
        if ended:
            record: Record = {
                "ts": int(self._clock() * 1e6),
                "queue": self._name,
                "ev": Event.EXPIRE,
                "state": target,
                "was": state,
                "msgs": ended,
            }
            self._journal.append(record)
        for msg_id in ended:
            self.changed(msg_id, Entry(state, state, 0.0, 0), state, target)
        return ended

    def _rests(self, msg_id: str, state: State) -> bool:
        """Whether a message has ended in `state`, its folder lies there, and no
        other queue has still to get its attachments."""
        memory = self._memory
        if msg_id in memory.entries or memory.owed.taker_of(msg_id) is not None:
            return False
        try:
            os.stat(folder(state, msg_id), dir_fd=self._dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def join(self, msg_id: str, key: str, body: str) -> None:
        """Remember that what was sent under a key has joined a message: nothing new was
        made, and who asks again gets the same answer, whatever becomes of that one."""
        said: NoteFields = {"msg": msg_id, "key": key}
        if body:
            said["body"] = body
        line = self.note(Note.JOIN, **said)
        accepted = Accepted(msg_id, line["ts"] / 1e6, body, True)
        self._memory.remember_key(key, accepted)

    def note(self, note: Note, **more: Unpack[NoteFields]) -> Record:
        """Write a line that changes no state of its own; return it."""
        now = int(self._clock() * 1e6)
        record: Record = {"ts": now, "queue": self._name, "ev": note}
        record.update(cast("Record", more))
        record["seq"] = self._journal.append(record)
        return record

    def stand(self, rows: Sequence[tuple[str, str]]) -> None:
        """Write down how messages stand for which others wait."""
        for at in range(0, len(rows), STANDINGS_IN_LINE):
            some = rows[at : at + STANDINGS_IN_LINE]
            self.note(Note.STANDS, standings=[list(row) for row in some])
            self._memory.standings.update(some)

    def tell_people(self, news: JsonObject, out: Sequence[OutEntry]) -> None:
        """Write a line that tells how the queue goes, and owes `out`."""
        entries = outbox.packed([outbox.stamped(entry) for entry in out])
        fields: NoteFields = {"news": news, "out": entries} if out else {"news": news}
        record = self.note(Note.NEWS, **fields)
        self._memory.news.take(record)
        if out:
            self._owe(record, record["ts"] / 1e6)


def _add_attempt(entry: Entry, status: bytes, number: int | None) -> None:
    """Keep what is to be written of an attempt; `number`: of a file of its own."""
    entry.status = status
    if number is not None:
        entry.attempts = attempt_files.add(entry.attempts, number, status)


def _add_turn(
    record: Record, entry: Entry, message: Message | None, due: float
) -> Rank:
    """Say when a message that waits is to run; return its rank."""
    rank = entry.rank
    if message is not None and message.priority != rank.priority:
        rank = prior(message.priority, rank)
    if record["state"] is State.QUE:
        record["due"] = due
        if rank.priority:
            record["priority"] = rank.priority
    return rank


def _add_content(
    record: Record, entry: Entry, message: Message | None
) -> tuple[bytes | None, float]:
    """Say the content of a message, if that has changed, and how often it was tried;
    return what is to be written into its file, and when it is due."""
    if message is None:
        record["count"], record["attempt"] = entry.count, entry.attempt
        return entry.body, entry.due
    is_new = record["ev"] is Event.COMMIT
    body = message.encode_new() if is_new else message.encode()
    record["message"] = orjson.Fragment(body)
    record["count"], record["attempt"] = message.count, message.attempt
    return body, message.due


def _add_more(record: Record, more: More) -> None:
    record.update(cast("Record", more))
    if "out" in record:
        entries = [outbox.stamped(entry) for entry in record["out"]]
        record["out"] = outbox.packed(entries)
