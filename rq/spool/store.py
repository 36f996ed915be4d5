"""The messages of one queue, for the process that owns it: the face of the spool.

What is true at all times

- The journal is the promise, memory is what its lines say, and folders follow. An entry's
  `state` is the truth of the last line; `at` is where the folder lies. Where the two
  differ the message is in `unsettled`, and `settle` will bring its folder there.
- One process has the lock of the queue, and one thread of it changes memory: the thread
  of the loop. Other threads read and write files of messages, and never an entry. While
  one of them works in a folder, the message is `working_on` and none of its events can be
  fired.
- Memory already holds events that are not synced yet, those of the open group. So nothing
  that was read from memory, not even the answer to a question, leaves the process before
  a `commit` that came after it: a power cut could take back what the client was told.
- A live message costs an entry of some hundred bytes and no file that is open. One that
  has ended is forgotten once its folder lies in its last place; from then on it is found
  by looking for that folder.

What may happen

- The process is killed between any two instructions. The next start makes the same memory
  from the same lines, and the same `settle` brings the folders after it.
- The disk takes no more writes. Events still change memory, `commit` raises, and the owner
  answers no client until one succeeds. Folders that cannot be made or moved stay in
  the lag, the list of folders still to write, where each is tried on its own; `stuck` says
  why.
- A script or a person moves, removes or replaces a folder of a message that is live. The
  journal wins: the folder is made again from memory, or from the `spare`: the copy of the
  message's file that an attempt keeps while its script runs.

Why so

An event is one line and one change of memory; that is all that a client waits for. A folder
costs many times as much as a line, and most messages change again within a second: what is
written late is written once, and where the message ends. `Spool` only joins the parts
(`events`, `lagging`, `reader`, `memory`); methods that it passes on are theirs, called
directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Unpack

from rq import names
from rq.errors import BadMessage, TooLate
from rq.files import durable
from rq.files.beneath import Stamp
from rq.journal.segments import Position
from rq.journal.writer import DryRun, Journal
from rq.layout import JOB, STDIO_LOG, QueueDir, folder
from rq.logs import fields
from rq.message import limits
from rq.message.fields import JsonObject
from rq.message.message import Message, to_keep
from rq.message.retry import Retry
from rq.spool import after_list, outbox
from rq.spool.entry import Entry
from rq.spool.events import Events
from rq.spool.gone import Gone
from rq.spool.lag import Lag
from rq.spool.leases import LeaseNotes
from rq.spool.memory import Memory
from rq.spool.mover import Mover
from rq.spool.news import Ended, Owes, Printed, owes_nothing
from rq.spool.reader import Reader
from rq.spool.record import Facts, LeaseFields, More, Record, Word, rider_record
from rq.spool.run_folders import RunFolders
from rq.spool.status import status_file
from rq.words.states import FINAL, Event, Note, Role, State, next_state

LAG_MESSAGES = 40_000
LAG_BYTES = 64 * 1024 * 1024
PREP_SECONDS = 36 * 3600.0
REST_SECONDS = 1.0  # how long a running message may be without a folder

_log = logging.getLogger(__name__)


# The setting `retry` of the queue, as it is now.
Rule = Callable[[], Retry | None]


class Spool:
    """The messages of one queue; made by `recovery.open_spool`, which holds the lock."""

    def __init__(
        self,
        queue: QueueDir,
        dir_fd: int,
        journal: Journal | DryRun,
        memory: Memory,
        *,
        clock: Callable[[], float] = time.time,
        threads: Executor | None = None,
        owes: Owes = owes_nothing,
        retry: Rule = lambda: None,
    ) -> None:
        self.queue = queue
        self.dir_fd = dir_fd
        self.journal = journal
        self.entries = entries = memory.entries
        self.counts = counts = memory.counts
        self.keys = memory.keys
        self.owed = memory.owed
        self.txns = memory.txns
        self.bulks = memory.bulks
        self.news = memory.news
        self.uniques = memory.uniques
        self.standings = memory.standings
        self.leases = memory.leases
        self.ended_leases = memory.ended_leases
        self.compares = memory.compares
        self.deadline: float | None = None  # seconds after `due`; then none is claimed
        self.ranks = memory.ranks
        self.adopted = memory.adopted
        self.seen = memory.seen
        self.clock = clock
        self.threads = threads
        self._owes = owes
        self.retry = retry
        self.ids = names.IdSource(journal.start)
        self.gone = Gone(queue, dir_fd, journal)
        self.lagging = Lag(entries, counts, Mover(queue, dir_fd, self.gone), self.gone)
        self.unsettled = self.lagging.unsettled
        self.run_folders = RunFolders(queue.path, dir_fd)
        reader = Reader(memory, dir_fd, clock)
        self.events = events = Events(
            queue, dir_fd, journal, memory, self.lagging, clock=clock
        )
        self.lease_notes = LeaseNotes(events.note, memory.leases)
        # Its parts answer these themselves: a call in between would cost at each event.
        self.fire, self.note, self.expire = events.fire, events.note, events.expire
        self.tell_people, self.stand = events.tell_people, events.stand
        self.figures = events.figures
        self.join = events.join
        self.find, self.state_of, self.free_id = (
            reader.find,
            reader.state_of,
            reader.free_id,
        )
        self.place, self.read, self.status = reader.place, reader.read, reader.status
        self._read_stamped = reader.read_stamped
        # Of the file that the last claim has read; None: it was not written yet.
        self.claimed_stamp: Stamp | None = None
        self.prepare, self.prepare_in = events.prepare, events.prepare_in
        self.entry, self.entry_of = memory.entry, memory.entry_of
        self.live, self.in_state = memory.live, memory.in_state
        self.newest_first = memory.newest_first
        self.message_of, self.forget_key = memory.message_of, memory.forget_key
        self.remembered_keys = memory.remembered_keys
        self.accepted_with = memory.accepted_with

    # ---- the lag, ids

    @property
    def lag(self) -> int:
        """How many folders do not yet agree with the journal, and are to."""
        return self.lagging.number

    def lags(self, msg_id: str) -> bool:
        """Whether the folder of a message does not agree with the journal yet."""
        return msg_id in self.unsettled

    @property
    def lag_bytes(self) -> int:
        """How many bytes are still to be written into them."""
        return self.lagging.size

    @property
    def stuck(self) -> str | None:
        """Why a folder could not be made or moved when that was last tried."""
        return self.lagging.stuck

    @property
    def waited(self) -> float:
        """How long, in seconds, the oldest folder has waited to be settled."""
        since = self.lagging.since()
        return 0.0 if since is None else self.clock() - since

    def new_id(self) -> str:
        return self.ids.next(self.clock())

    # ---- live messages

    @property
    def live_count(self) -> int:
        """How many messages are live."""
        return len(self.entries)

    @property
    def depth(self) -> int:
        """How many messages wait, with rows that have still to become some."""
        return self.counts.of(State.QUE) + self.txns.stock.left

    def moving(self) -> dict[str, Entry]:
        """Return the messages whose folders do not yet agree with the journal."""
        return self.unsettled.copy()

    def why_stuck(self, msg_id: str) -> str | None:
        """Return why the folder of a message cannot be made or moved; None: it can."""
        return self.lagging.why_stuck(msg_id)

    @contextlib.contextmanager
    def working_on(self, msg_id: str) -> Iterator[Entry]:
        """Keep a message as it is while a thread works in its folder: until the end of
        the block no event of it can be fired."""
        entry = self.entries[msg_id]
        entry.busy += 1
        try:
            yield entry
        finally:
            entry.busy -= 1

    @contextlib.contextmanager
    def committing(self, msg_id: str, ended: asyncio.Future[None]) -> Iterator[None]:
        """As `working_on`, for a commit: who asks for it again waits until it has
        `ended`, and no attachment changes meanwhile."""
        with self.working_on(msg_id) as entry:
            entry.committing = ended
            try:
                yield
            finally:
                entry.committing = None
                ended.set_result(None)

    # ---- the journal

    @property
    def journal_id(self) -> str:
        """What names the journal for ever."""
        return self.journal.journal_id

    @property
    def start(self) -> int:
        """The number of this start of the queue."""
        return self.journal.start

    @property
    def last_seq(self) -> int:
        """The last event that was fired."""
        return self.journal.seq

    @property
    def durable_seq(self) -> int:
        """The last event that is durable."""
        return self.journal.position.seq

    @property
    def durable(self) -> Position:
        """Up to where the journal is durable."""
        return self.journal.position

    @property
    def pending(self) -> bool:
        """Whether events wait for `commit`."""
        return self.journal.pending

    @property
    def group_full(self) -> bool:
        """Whether no more events may be fired before a `commit`."""
        return self.journal.full

    @property
    def journal_failed(self) -> str | None:
        """Why the last commit did not succeed; None: it did."""
        return self.journal.failed

    @property
    def journal_full(self) -> str | None:
        """Why the journal has no space for more events; None while it has."""
        return self.journal.no_space

    def write(self, last: bool) -> bool:
        """Write what was fired; return whether a kill -9 can no longer lose it. `last`:
        the group ends with it."""
        return self.journal.write(last)

    def seal(self) -> Future[None] | None:
        """Make all events so far durable, then history; None when there is nothing new."""
        self.commit()
        return self.journal.seal()

    @property
    def is_sealed(self) -> bool:
        """Whether all events so far are history."""
        return self.journal.is_sealed

    def look_for_space(self) -> None:
        """Try again to make what the journal will need next, when that has failed."""
        self.journal.look_again()

    @property
    def displaced(self) -> str | None:
        """Why nothing is written any more: the queue's path leads elsewhere."""
        return self.journal.displaced

    def look_at_place(self) -> None:
        """See whether the queue's path still leads to what is written."""
        self.journal.look_at_place()

    def remove_again(self) -> None:
        """Try again to remove what could not be removed."""
        self.gone.try_again()

    @property
    def bytes_since_checkpoint(self) -> int:
        """How much was written since the last checkpoint began."""
        return self.journal.bytes_written

    @property
    def checkpoint_waits(self) -> bool:
        """Whether the checkpoint that has begun waits for folders."""
        return bool(self.lagging.barrier)

    # ---- events

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Remove directories of done and relayed that hold nothing any more; a folder
        on its way into one of them makes it again."""
        for path in directories:
            durable.remove_dir(path, self.dir_fd)

    def owed_by(
        self, message: Message, facts: Facts, printed: Printed | None = None
    ) -> More:
        """Return the fields of a line that say what the end of a message owes."""
        ended = Ended(message, facts, self.clock(), self.news, printed)
        return self._owes(ended)

    def goes_on(self, msg_id: str, place: str) -> None:
        """Write down under which id a message goes on that has ended here: QUEUE/ID."""
        self.note(Note.GOES_ON, msg=msg_id, place=place)
        self.keep_place(msg_id, place)

    def keep_place(self, msg_id: str, place: str) -> None:
        """Have the folder of a message that has ended say where it goes on."""
        state = self.find(msg_id)
        if state not in FINAL:
            return  # it was sent round again, or is gone
        status = self.status(msg_id)
        counts = status.get("count", 0), status.get("attempt", 0)
        entry = self.entries.get(msg_id) or Entry(state, state, 0.0, 0, *counts)
        entry.status, entry.written = to_keep({**status, "goes_on": place}), False
        self.entries[msg_id] = entry
        self.lagging.add(msg_id, entry)

    def sent(self, seq: int, number: int, **word: Unpack[Word]) -> None:
        """Write down that an entry of the outbox was delivered; `word`: who said so."""
        if self.owed.pop((seq, number), None) is not None:
            self.note(Note.SENT, of=seq, i=number, **word)

    def send_again(self, seq: int, number: int, **word: Unpack[Word]) -> None:
        """Write down that an entry of the outbox is owed as if it were from now."""
        line = self.note(Note.AGAIN, of=seq, i=number, **word)
        since = line["ts"] / 1e6
        self.owed[seq, number] = outbox.renewed(self.owed[seq, number], since)

    # ---- what happens to a message, in words

    def submit(self, message: Message, **more: Unpack[More]) -> Entry:
        """Accept a message, new or prepared: → que, in one line.

        The attachments of a prepared one are durable by now. So is a long list of
        predecessors, before the line that names its file.
        """
        if message.after and after_list.is_long(message):
            message = self._with_list(message)
        self.fire(message.msg_id, Event.COMMIT, Role.CREATOR, message=message, **more)
        return self.entries[message.msg_id]

    def _with_list(self, message: Message) -> Message:
        """Write the list of a message into its folder; make that, if there is none."""
        msg_id, message = message.msg_id, after_list.named(message)
        entry = self.entries.get(msg_id)
        if entry is None:
            self.prepare(message)
        at_door = entry is not None and entry.at_new
        path = f"new/{at_door}" if at_door else folder(State.PREP, msg_id)
        try:
            after_list.write(message, path, self.dir_fd)
        except OSError:
            if entry is None:
                self.fire(msg_id, Event.DISCARD, Role.CREATOR)
            raise
        return message

    def claim(self, msg_id: str, slot: int, batch: str | None = None) -> Message:
        """que → run: an attempt begins. BadMessage when its file cannot be used, TooLate
        past its deadline."""
        more: More = {"slot": slot} if batch is None else {"slot": slot, "batch": batch}
        message, self.claimed_stamp = self._read_stamped(msg_id)
        return self._claim(message, more)

    def lease(
        self,
        msg_id: str,
        lease: LeaseFields,
        lasts: Callable[[Message], float | None] = lambda _: None,
    ) -> Message:
        """As `claim`, for a holder who has a token; `leases` tells of it from now on, and
        how long its attempt `lasts` at most."""
        message = self.read(msg_id)
        most = lasts(message)
        more: LeaseFields = lease if most is None else {**lease, "lasts": most}
        return self._claim(message, {"lease": more})

    def _claim(self, message: Message, more: More) -> Message:
        msg_id = message.msg_id
        entry = self.entries[msg_id]
        if self.deadline is not None or "deadline" in message.limits:
            now = self.clock()
            late = limits.too_late(message.limits, self.deadline, entry.due, now)
            if late is not None:
                raise TooLate(late)
        entry.attempt += 1
        self.fire(msg_id, Event.CLAIM, Role.QUEUE, **more)
        return message.with_(count=entry.count, attempt=entry.attempt, due=entry.due)

    def log_size(self, msg_id: str) -> int:
        """Return how many bytes the log of a message has; 0 if it has none."""
        path = f"{self.place(msg_id)}/{JOB}/{STDIO_LOG}"
        try:
            return os.stat(path, dir_fd=self.dir_fd, follow_symlinks=False).st_size
        except OSError as error:
            # A script may have put a link in the place of its directory.
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                return 0
            raise

    def reschedule(
        self,
        msg_id: str,
        due: float | None = None,
        role: Role = Role.CREATOR,
        *,
        priority: int | None = None,
        **more: Unpack[More],
    ) -> None:
        """Change when a message in que runs; None: that stays. It keeps its arrival."""
        entry = self.entries[msg_id]
        changed = self.read(msg_id).with_(
            due=entry.due if due is None else due,
            priority=entry.rank.priority if priority is None else priority,
        )
        seq, since = entry.seq, entry.since
        self.fire(msg_id, Event.RESCHEDULE, role, message=changed, **more)
        entry.seq, entry.since = seq, since

    def hold(self, msg_id: str, hold: JsonObject, **more: Unpack[More]) -> None:
        """Hold a message in que; `hold` says by whom, why, and since when."""
        self._retell(self.read(msg_id).with_(held=hold), {**more, "held": hold})

    def release(self, msg_id: str, who: str, **more: Unpack[More]) -> None:
        """Release a message that was held."""
        released: More = {**more, "held": None, "by": who}
        self._retell(self.read(msg_id).with_(held=None), released)

    def free(self, msg_id: str, end: JsonObject, role: Role = Role.QUEUE) -> None:
        """Let a message wait for no other any more; `end` says by what. It comes into the
        schedule now, and a deadline of its queue counts from now on."""
        message, now = self.read(msg_id), self.clock()
        self.entries[msg_id].due = max(self.entries[msg_id].due, now)
        self._retell(message.with_(after_end=end), {"after": end}, role)

    def _retell(self, message: Message, more: More, role: Role = Role.CREATOR) -> None:
        """Tell the new content of a message in que, which keeps its place there; its file
        may tell a due by a clock that was put back since."""
        entry = self.entries[message.msg_id]
        seq, since = entry.seq, entry.since
        changed = message.with_(due=entry.due)
        self.fire(message.msg_id, Event.RESCHEDULE, role, message=changed, **more)
        entry.seq, entry.since = seq, since

    def ride(self, rider: str, event: Event, line: Record) -> None:
        """End a coalesced message as the one that ran did, whose line names it."""
        record = rider_record(line, rider)
        entry = self.entries[rider]
        source = entry.state
        target = next_state(source, event, Role.QUEUE)
        try:
            entry.body = self.read(rider).with_(dup=record["dup"]).encode()
        except BadMessage as error:
            _log.error("a rider cannot be read: %s", fields(msg_id=rider, reason=error))
        entry.status = status_file(record)
        self.events.changed(rider, entry, source, target)
        self.figures.take(record)

    def rest(self, msg_id: str) -> None:
        """Do not move the folder of a message to run/ yet, for REST_SECONDS: most
        attempts end within that time, and the folder is moved once instead of twice."""
        entry = self.unsettled.get(msg_id)
        if entry is not None:
            entry.rests_until = time.perf_counter() + REST_SECONDS

    # ---- commit and settle

    def commit(self) -> None:
        """Make all events so far durable; DiskFailed: call again later."""
        self.journal.commit()

    def commit_when_full(self) -> None:
        """As `commit`, where the open group has no room for many more events."""
        if self.journal.full:
            self.journal.commit()

    def settle(self, msg_id: str) -> None:
        """Make the folder of a message agree with its state; OSError when it cannot."""
        self.lagging.settle(msg_id)

    def settle_some(self, seconds: float) -> bool:
        """Settle the oldest folders for `seconds`; return whether some are left that can
        be settled at once."""
        return self.lagging.settle_some(seconds)

    @property
    def rests(self) -> bool:
        """Whether folders were left alone when some were settled last, because a thread
        works in them, or their message may end soon."""
        return self.lagging.rests > 0

    def settle_all(self) -> None:
        """Settle everything; OSError when something cannot be."""
        self.lagging.settle_all()

    def close(self) -> None:
        os.close(self.dir_fd)
