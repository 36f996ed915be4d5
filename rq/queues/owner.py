"""What the owner of a queue knows and decides: config, states, what waits, who runs.

No sockets and no processes here; `runner` starts and ends workers, `server` talks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rq import config as configs
from rq import fieldnames
from rq.config.admin import Admin, admin_status
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import (
    BadConfig,
    BadMessage,
    CannotRead,
    NoSuchMessage,
    Refused,
    Unread,
    WrongState,
)
from rq.layout import Root
from rq.message import Message, from_request
from rq.proc.family import Family
from rq.queues.attempts.attempt import Attempt
from rq.queues.batches.batch import Batch
from rq.queues.disk_room import Room
from rq.queues.rates import Rates
from rq.queues.schedule import batch_rule, coalesce
from rq.queues.schedule.batch_rule import Gathering, Rule
from rq.queues.schedule.coalesce import Groups
from rq.queues.schedule.item import Item
from rq.queues.schedule.waiting import Waiting, turn
from rq.queues.thread_pools import Hands
from rq.queues.workers.worker import Worker
from rq.scripts import environment
from rq.spool import Opened
from rq.spool.disk_usage import DiskUsage
from rq.spool.entry import Entry
from rq.spool.store import LAG_BYTES, LAG_MESSAGES
from rq.states import Event, Role, State

SCRIPTERROR = "SCRIPTERROR"
MOST_RIDERS = 1000  # their ids stand in one line of the journal
_NO_BATCHES = Rule(1, 0.0)

log = logging.getLogger(__name__)


class Owner:
    """One queue, seen from its process."""

    def __init__(
        self,
        root: Root,
        name: str,
        opened: Opened,
        main: RootConfig,
        config: QueueConfig,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
    ) -> None:
        self.root = root
        self.name = name
        self.opened = opened
        self.spool = opened.spool
        self.main = main
        self.config = config
        self.family = Family()
        self.loop = loop
        self.threads = threads  # the journal's
        self.hands = Hands()
        self.weights = DiskUsage(opened.spool.queue)
        self.wake: Callable[[], None] = lambda: None
        self.workers: dict[str, Attempt] = {}
        self.claimed: set[str] = set()  # claimed, not yet started
        self.residents: list[Worker] = []  # workers that stay, with or without one
        self.riders: dict[str, dict[str, None]] = {}  # leader: its riders
        self.held: dict[int, str] = {}  # slot: who holds it though its script has ended
        self.left_running: dict[
            str, str
        ] = {}  # message: who, of an earlier owner, has it
        self.busy_keys: dict[str, str] = {}  # exclusion key: who runs with it
        self.waiting = Waiting(self._is_waiting, self._dest_of, self._leader_of)
        self.groups = Groups()
        self.gathering = Gathering(_NO_BATCHES)  # who waits for a batch to start
        self.hurried: set[str] = set()  # who lets it start at once
        self.batches: list[Batch] = []  # claimed or at work
        self.rates = Rates()
        self.waiters: list[asyncio.Future[None]] = []
        self.began = time.monotonic()
        self.began_at = time.time()
        self.stopping = False
        self.checkpoint_seq = 0
        self.started = 0  # attempts, since this process began
        self.went_well = 0  # of them
        self.oper: str | None = None  # SCRIPTERROR, with its reason
        self.lacks: str | None = None  # what the last start failed for, but the script
        self.standing: tuple[str, int] | None = None  # what holds up what is due
        self.standing_since = 0.0  # monotonic
        self.config_error: str | None = None
        self.disk_failed: str | None = None
        self.no_checkpoint: str | None = None  # why there was none when it was due
        self.left_at_door: dict[str, str] = {}
        self.undelivered: dict[str, str] = {}  # queue: why it has not what it is owed
        self.prepared: dict[str, str] | None = None  # key: message in prep
        self.retrying: set[str] = set()  # their old processes are being searched for
        self.argv_prefix = config.argv_prefix
        self.base_env = environment.fixed(root.path, main, config)
        self.queue = self.spool.queue
        self._url = main.full_id(name, "")
        self._admin: Admin | None = None
        self.room = Room(self.spool.dir_fd, main)
        self._fill()

    # ---- what waits

    def _fill(self) -> None:
        """Take all messages in que into the schedule and into groups."""
        que = self._schedule()
        self.groups = Groups()
        compared = self.spool.compares
        self.spool.compares = self.config.coalesce_params
        if not self.config.coalesce_params:
            return
        for msg_id, one in sorted(que, key=lambda pair: pair[1].seq):
            if one.key is not None and compared == self.spool.compares:
                self.groups.add(one.key, msg_id)  # its file need not be read
            else:
                self._group(msg_id, one)

    def _schedule(self) -> list[tuple[str, Entry]]:
        """Take all messages in que into the schedule; return them."""
        que = [
            (msg_id, one)
            for msg_id, one in self.spool.entries.items()
            if one.state is State.QUE
        ]
        now = self.spool.clock()
        for _, one in que:
            if one.due > now:
                one.due = turn(one.due, one.since, one.attempt > 0, now)
        self.waiting = Waiting(self._is_waiting, self._dest_of, self._leader_of)
        self.waiting.fill(Item(one.due, one.seq, msg_id) for msg_id, one in que)
        self.gathering = Gathering(batch_rule.rule(self.config.batch) or _NO_BATCHES)
        return que

    def _group(self, msg_id: str, entry: Entry, message: Message | None = None) -> None:
        try:
            params = (message or self.spool.read(msg_id)).params
        except (BadMessage, NoSuchMessage):
            return  # claim will move it to err
        entry.key = coalesce.key(params, self.config.coalesce_params)
        if entry.key is not None:
            self.groups.add(entry.key, msg_id)

    def _is_waiting(self, item: Item) -> bool:
        entry = self.spool.entries.get(item.msg_id)
        return (
            entry is not None
            and entry.state is State.QUE
            and entry.seq == item.seq
            and entry.due == item.due
        )

    def _leader_of(self, msg_id: str) -> str | None:
        return self.spool.entries[msg_id].rider_of

    def _dest_of(self, msg_id: str) -> str:
        try:
            return self.spool.read(msg_id).dest
        except (BadMessage, NoSuchMessage):
            return ""  # claim will move it to err

    def waits(self, msg_id: str, message: Message | None = None) -> None:
        """Take a message that has come into que into the schedule."""
        entry = self.spool.entries[msg_id]
        entry.rider_of = None
        self.waiting.add(Item(entry.due, entry.seq, msg_id))
        if self.config.coalesce_params:
            self._group(msg_id, entry, message)

    def clock_went_back(self) -> None:
        """Look anew at who waits until when."""
        self._schedule()
        self.wake()

    def leaves(self, msg_id: str) -> None:
        """Forget a message that has left que."""
        self.gathering.remove(msg_id)
        self.hurried.discard(msg_id)
        entry = self.spool.entries.get(msg_id)
        if entry is None:
            return
        if entry.key is not None:
            self.groups.remove(entry.key, msg_id)
            entry.key = None
        if entry.rider_of is not None:
            self.riders.get(entry.rider_of, {}).pop(msg_id, None)
            entry.rider_of = None

    def gather(self, msg_id: str) -> None:
        """Let a message that is due wait for the batch that it goes in; Unread: which one
        that is cannot be known yet."""
        params: Mapping[str, Any] = {}
        entry, last = self.spool.entries[msg_id], False
        if self.config.batch.get("by") or entry.count:
            try:
                message = self.spool.read(msg_id)
                params = message.params
                last = 0 < entry.count >= message.max_count - 1
            except Unread:
                raise
            except (BadMessage, NoSuchMessage):
                pass  # the claim says why
        hurry = msg_id in self.hurried
        self.hurried.discard(msg_id)
        since = min(max(entry.due, entry.since), self.spool.clock())
        most = self.gathering.rule.at_most(entry.lost, last)
        self.gathering.add(msg_id, since, params, hurry, most)

    def batch_of(self, msg_id: str) -> Batch | None:
        """Return the batch that a message runs in, unless it has ended."""
        return next((one for one in self.batches if one.has(msg_id)), None)

    def held_by(self, msg_id: str) -> str:
        """Return, in a sentence, who keeps a message in run whose script has ended."""
        attempt = self.workers.get(msg_id)
        if attempt is None:
            return self.left_running.get(msg_id, "")
        return self.held.get(attempt.slot.number, "")

    def first_due(self) -> float | None:
        """Return the smallest due of all that wait; None when nothing waits."""
        known = (self.waiting.first_due(), self.gathering.oldest())
        return min((one for one in known if one is not None), default=None)

    def exclusion_key(self, msg_id: str) -> str | None:
        """Return what no running message may share with this one. Unread: that is not
        known for now, and it must not run beside one that has the same."""
        if not self.config.blocking_params:
            return None
        try:
            params = self.spool.read(msg_id).params
        except Unread:
            raise
        except (BadMessage, NoSuchMessage):
            return None
        return coalesce.key(params, self.config.blocking_params)

    def gather_riders(self, leader: str, key: str | None) -> None:
        """Let all other waiting messages that equal the leader ride with it."""
        if key is None:
            return
        riders = self.groups.others(key, leader, MOST_RIDERS)
        for rider in riders:
            self.leaves(rider)
            entry = self.spool.entries[rider]
            entry.rider_of, entry.key = leader, key
        if riders:
            self.riders[leader] = dict.fromkeys(riders)

    def ride_on(self, leader: str) -> None:
        """Forget the riders of a message that has ended well: they end with it."""
        self.waiting.forget_riders(leader)
        self.riders.pop(leader, None)

    def release_riders(self, leader: str) -> None:
        """Give riders back to que: their leader did not succeed."""
        for rider in self.riders.pop(leader, ()):
            entry = self.spool.entries.get(rider)
            if entry is not None and entry.state is State.QUE:
                entry.rider_of = None
                if entry.key is not None:
                    self.groups.add(entry.key, rider)
        self.waiting.part(leader)

    @property
    def riding(self) -> int:
        return sum(len(one) for one in self.riders.values())

    # ---- what is wanted and what is

    @property
    def admin(self) -> Admin:
        """What the operator wants; read from the files once a turn."""
        if self._admin is None:
            self._admin = admin_status(self.root, self.name)
        return self._admin

    def forget_admin(self) -> None:
        self._admin = None

    @property
    def restored(self) -> str | None:
        """Why nothing may happen here before a person's word: the directory was copied
        or restored."""
        return self.opened.restored

    @property
    def status(self) -> str:
        if self.restored and self.admin is Admin.UP:
            return str(Admin.PAUSE)
        return SCRIPTERROR if self.oper else str(self.admin)

    @property
    def may_start(self) -> bool:
        failed = self.disk_failed or self.spool.journal.failed
        if self.restored or self.stopping or failed or self.spool.lag >= LAG_MESSAGES:
            return False
        return self.admin is Admin.UP

    @property
    def slots_free(self) -> int:
        together = sum(one.left for one in self.batches)
        alone = len(self.workers) + len(self.claimed) - together
        return self.config.num_workers - alone - len(self.batches)

    def closed(self) -> str | None:
        """Return why nothing new can be accepted; None while it can."""
        if self.restored:
            return self.restored
        if self.disk_failed:
            return f"the disk failed: {self.disk_failed}"
        if self.stopping:
            return "the queue is stopping"
        if self.spool.journal.no_space:
            return self.spool.journal.no_space
        if self.spool.stuck and (
            self.spool.lag >= LAG_MESSAGES or self.spool.lag_bytes >= LAG_BYTES
        ):
            return f"folders cannot be made: {self.spool.stuck}"
        return self.room.lacking()

    # ---- accepting

    def full_id(self, msg_id: str) -> str:
        return self._url + msg_id

    def check_open(self) -> None:
        """Refused when nothing new can be accepted."""
        reason = self.closed()
        if reason is not None:
            raise Refused(f"not accepted: {reason}")

    def make(self, asked: Mapping[str, Any], key: str | None = None) -> Message:
        """Return a new message with its id, named by `key`; BadMessage when it cannot be
        one, or would be silent about what was meant."""
        if not fieldnames.is_handed_on(asked, key):
            fieldnames.check(asked)
        return self.make_copy(asked)

    def make_copy(self, asked: Mapping[str, Any]) -> Message:
        """As `make`, of a message that was accepted before, whatever its fields are
        called."""
        msg_id = self.spool.new_id()
        return from_request(asked, msg_id, self.spool.clock(), self.full_id(msg_id))

    def accept(self, message: Message, **more: Any) -> None:
        """Accept a message; promised when the group is durable."""
        self.spool.submit(message, **more)
        self.waits(message.msg_id, message)
        self.count("accepted")
        self.wake()

    def count(self, what: str) -> None:
        """Count an event of the last hour: accepted, done or err."""
        self.went_well += what == "done"
        self.rates.count(what, time.monotonic(), self.spool.counts.of(State.QUE))

    def run_now(self, msg_id: str) -> None:
        """Let a message in que run before all others."""
        entry = self.spool.entries.get(msg_id)
        if entry is None or entry.state is not State.QUE or entry.rider_of:
            raise WrongState("msg not in runnable state")
        first = self.first_due()
        now = self.spool.clock()
        due = max(0.0, min(now, (now if first is None else first) - 1.0))
        if self.config.batch:
            self.hurried.add(msg_id)
        self.spool.reschedule(msg_id, due)
        self.waiting.add(Item(entry.due, entry.seq, msg_id))
        self.waiting.hurry(msg_id)
        self.wake()

    def discard(self, msg_id: str) -> None:
        """Remove a message that does not run; WrongState while a copy of it, with its
        attachments, is still to be handed on."""
        taker = self.spool.owed.taker_of(msg_id)
        if taker is not None:
            raise WrongState(f"msg has still to be handed on to {taker}")
        self.leaves(msg_id)
        self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
        self.wake()

    def committed(self) -> asyncio.Future[None]:
        """Return what is done when all events so far are durable."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.waiters.append(future)
        self.wake()
        return future

    # ---- config

    def reload(self) -> bool:
        """Read the queue's config again; a bad one leaves the old one in force. Return
        whether it is known what it says now."""
        try:
            config = configs.read_queue(self.queue)
        except BadConfig as error:
            if self.config_error != str(error):
                log.error("%s; the queue goes on with its old config", error)
            self.config_error = str(error)
            return not isinstance(error, CannotRead)
        self.config_error = None
        if config == self.config:
            return True
        old, self.config = self.config, config
        self.argv_prefix = config.argv_prefix
        self.base_env = environment.fixed(self.root.path, self.main, config)
        log.info("config read again")
        self.waiting.release_all()
        old_rule = old.coalesce_params, old.batch
        if old_rule != (config.coalesce_params, config.batch):
            for leader in list(self.riders):
                self.release_riders(leader)
            self._fill()
        self.wake()
        return True
