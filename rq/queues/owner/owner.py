"""The parts of one queue, joined: settings, what is admitted, what waits, what runs.

Who joins most of them takes the `Owner` whole: the process, the turns, the runner, the
commands. Who needs a few (`Retention`, `Delivery`, `Orphans`) takes these, so that its
constructor says what it depends on. A test lists who may take the whole, and why.

No sockets and no processes here; `runner` starts and ends workers, `server` talks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Unpack

from rq.config.admin import Admin
from rq.config.settings import QueueConfig
from rq.errors import BadMessage, WrongState
from rq.message import fieldnames
from rq.message.causes import Cause
from rq.message.fields import JsonObject
from rq.message.message import Message, from_request
from rq.outbound.webhooks import Webhooks
from rq.proc.family import Family
from rq.queues.attempts.leases import Leases
from rq.queues.attempts.registry import Attempts
from rq.queues.attempts.remote_workers import RemoteWorkers
from rq.queues.concurrency import ThreadPools, Wakeup
from rq.queues.owner.admission import Admission
from rq.queues.owner.backlog import Backlog
from rq.queues.owner.health import Health
from rq.queues.owner.identity import Identity
from rq.queues.owner.rates import Rates
from rq.queues.owner.settings import Settings
from rq.queues.owner.uniqueness import FREE, Uniqueness
from rq.scripts.script_file import ScriptFile
from rq.spool import Accepted, Opened
from rq.spool.record import Facts, More
from rq.words.nesting import Json
from rq.words.states import Event, Role, State

SCRIPTERROR = "SCRIPTERROR"
PREPARED = "prep/"  # how the key begins of a message that came without one: its id


class Owner:
    """The parts of one queue, and what takes several of them: to make, accept, remove."""

    def __init__(
        self,
        opened: Opened,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
    ) -> None:
        self.opened = opened
        self.spool = opened.spool
        self.queue = self.spool.queue
        self.settings = settings
        self.root = settings.root
        self.name = settings.name
        self.main = settings.main
        self.health = Health()
        self.admission = Admission(settings, self.spool, opened.restored)
        self.backlog = Backlog(self.spool, settings.queue)
        self.uniqueness = Uniqueness(self.spool, settings.queue)
        self.webhooks = Webhooks(settings.root)
        self.attempts = Attempts()
        self.leases = Leases()
        self.remote_workers = RemoteWorkers(self.leases)
        self.family = Family()
        self.rates = Rates()
        self.loop = loop
        self.wakeup = Wakeup(loop)
        self.wake = self.wakeup.ask
        self.committed = self.wakeup.committed
        self.threads = threads  # the journal's
        self.pools = ThreadPools()
        self.began = time.monotonic()
        self.began_at = time.time()
        self.successes = 0  # attempts, since this process began
        self.identity = Identity(
            self.root,
            self.name,
            lambda: settings.queue,
            self.spool.run_folders.let_pass,
        )
        self.script = ScriptFile(
            self.root.path, settings.queue.script, self.identity.why_not
        )
        self.prepared: dict[str, str] | None = None  # key: message in prep
        # Messages of which neither a folder nor the journal tells anything.
        self.lost: dict[str, None] = {}
        self.retrying: set[str] = set()  # their old processes are being searched for
        self.url = self.main.queue_url(self.name)

    @property
    def config(self) -> QueueConfig:
        """The settings of the queue that are in force."""
        return self.settings.queue

    # ---- what runs

    @property
    def slots_free(self) -> int:
        """How many more scripts may run."""
        return self.config.num_workers - self.attempts.slots_used

    @property
    def status(self) -> str:
        """How the queue is, in the ancestor's words."""
        if self.admission.restored and self.admission.admin is Admin.UP:
            return str(Admin.PAUSE)
        return SCRIPTERROR if self.script.error else str(self.admission.admin)

    # ---- accepting

    def full_id(self, msg_id: str) -> str:
        return f"{self.url}/{msg_id}"

    def make(self, request: Json, *, is_new: bool, by: str | None) -> Message:
        """Return a message with an id of its own; BadMessage when a field is wrong.
        `is_new`: a sender asks for it, and no field may be without effect. What was
        accepted before, here or by another RQ, is taken as it is. `by`: who sends it, as
        the door knows them; None: RQ itself."""
        msg_id, now = self.spool.new_id(), self.spool.clock()
        message = from_request(
            request, msg_id, now, self.full_id(msg_id), is_new=is_new
        ).sent_by(by)
        if is_new and (message.unique_key or message.post_run_webhook):
            self._check_new(message)
        return message

    def _check_new(self, message: Message) -> None:
        """BadMessage when a field of a new message would be without effect."""
        if message.unique_key and not self.uniqueness.on:
            raise BadMessage(
                f"unique_key has no effect: queue {self.name} has no setting unique"
            )
        # No client listens to a timer: its work is done, and its webhook fails.
        if not (message.by or "").startswith(fieldnames.OF_TIMER):
            self.webhooks.check(message.post_run_webhook)

    def accept(self, message: Message, **more: Unpack[More]) -> str:
        """Accept a message, or join it to an equal one; return the id of the one that
        stands, promised when the group is durable. NotUnique: it is refused."""
        accepted = self.accept_quietly(message, **more)
        self.wake()
        return accepted.msg_id

    def accept_quietly(self, message: Message, **more: Unpack[More]) -> Accepted:
        """As `accept`, without asking for a turn: others of the same group follow. Return
        what stands: the message, or the one that it has joined."""
        way = FREE if self.uniqueness.rule is None else self.uniqueness.way(message)
        if way.joins is not None:
            self._join(message.msg_id, way.joins, more)
            return Accepted(way.joins, 0.0, joined=True)
        self.spool.submit(message, **more)
        self.backlog.put(message.msg_id, message)
        self.count("accepted")
        if way.replaces:
            self._replace(way.replaces, message.msg_id)
        return Accepted(message.msg_id, 0.0)

    def stands_for(self, message: Message) -> str | None:
        """Return the message that one joins which is about to be accepted; those that
        it replaces are removed. NotUnique: it is refused."""
        way = self.uniqueness.way(message)
        self._replace(way.replaces, message.msg_id)
        return way.joins

    def _replace(self, others: Sequence[str], msg_id: str) -> None:
        for other in others:
            self._remove(other, Cause.REPLACED, f"message {msg_id}")

    def _join(self, msg_id: str, stands: str, more: More) -> None:
        """Join what was sent to a message; remember it by its key, or by the id that it
        has had in prep."""
        prepared = self.spool.find(msg_id) is State.PREP
        key = more.get("key") or (f"{PREPARED}{msg_id}" if prepared else None)
        if key is not None:
            self.spool.join(stands, key, more.get("body", ""))
        if prepared:
            self._remove(msg_id, Cause.JOINED, f"message {stands}")

    def _remove(self, msg_id: str, cause: Cause, text: str) -> None:
        self.backlog.remove(msg_id)
        facts: Facts = {"cause": cause, "outcome": "discard", "text": text}
        self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR, facts=facts)

    def count(self, what: str) -> None:
        """Count an event of the last hour: accepted, done or err."""
        self.successes += what == "done"
        self.rates.count(what, time.monotonic(), self.spool.depth, len(self.leases))

    def run_now(self, msg_id: str) -> None:
        """Put a message in que before all others."""
        self.backlog.run_now(msg_id)
        self.wake()

    def hold(self, msg_id: str, who: str, why: str, **more: Unpack[More]) -> bool:
        """Hold a message in que until `release`; False: it is held already."""
        hold: JsonObject = {"by": who, "why": why, "since": self.spool.clock()}
        changed = self.backlog.hold(msg_id, hold, **more)
        self.wake()
        return changed

    def release(self, msg_id: str, who: str, **more: Unpack[More]) -> bool:
        """Release a message that was held; False: it is not."""
        changed = self.backlog.release(msg_id, who, **more)
        self.wake()
        return changed

    def discard(self, msg_id: str, **more: Unpack[More]) -> None:
        """Remove a message that does not run; WrongState while a copy of it, with its
        attachments, is still to be handed on."""
        taker = self.spool.owed.taker_of(msg_id)
        if taker is not None:
            raise WrongState(f"msg has still to be handed on to {taker}")
        self.backlog.remove(msg_id)
        self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR, **more)
        self.wake()

    # ---- config

    def reload(self) -> bool:
        """Read the queue's config again; return whether it is known what it says now."""
        changed = self.settings.read_again(self.health)
        if changed:
            self.script.replace(self.config.script)
            self.backlog.reload(self.config)
            self.uniqueness.reload(self.config)
            self.wake()
        return changed is not None
