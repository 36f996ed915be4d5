"""What the owner of a queue knows and decides: config, states, what waits, who runs.

No sockets and no processes here; `runner` starts and ends workers, `server` talks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rq import config as configs
from rq import fieldnames
from rq.config.admin import Admin
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import BadConfig, CannotRead, WrongState
from rq.layout import Root
from rq.message import Message, from_request
from rq.proc.family import Family
from rq.queues.attempts.registry import Attempts
from rq.queues.concurrency.thread_pools import ThreadPools
from rq.queues.concurrency.wakeup import Wakeup
from rq.queues.owner.admission import Admission
from rq.queues.owner.backlog import Backlog
from rq.queues.owner.rates import Rates
from rq.scripts import environment
from rq.scripts.script_file import ScriptFile
from rq.spool import Opened
from rq.spool.disk_usage import DiskUsage
from rq.states import Event, Role, State

SCRIPTERROR = "SCRIPTERROR"

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
        self.pools = ThreadPools()
        self.weights = DiskUsage(opened.spool.queue)
        self.wakeup = Wakeup(loop)
        self.wake = self.wakeup.ask
        self.committed = self.wakeup.committed
        self.attempts = Attempts()
        self.rates = Rates()
        self.began = time.monotonic()
        self.began_at = time.time()
        self.checkpoint_seq = 0
        self.went_well = 0  # attempts, since this process began
        self.script = ScriptFile(root.path, config.script)
        self.standing: tuple[str, int] | None = None  # what holds up what is due
        self.standing_since = 0.0  # monotonic
        self.config_error: str | None = None
        self.no_checkpoint: str | None = None  # why there was none when it was due
        self.left_at_door: dict[str, str] = {}
        self.undelivered: dict[str, str] = {}  # queue: why it has not what it is owed
        self.prepared: dict[str, str] | None = None  # key: message in prep
        self.retrying: set[str] = set()  # their old processes are being searched for
        self.argv_prefix = config.argv_prefix
        self.base_env = environment.fixed(root.path, main, config)
        self.queue = self.spool.queue
        self._url = main.full_id(name, "")
        self.admission = Admission(root, name, main, self.spool, opened.restored)
        self.backlog = Backlog(self.spool, config)

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
        return self._url + msg_id

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
        self.backlog.add(message.msg_id, message)
        self.count("accepted")
        self.wake()

    def count(self, what: str) -> None:
        """Count an event of the last hour: accepted, done or err."""
        self.went_well += what == "done"
        self.rates.count(what, time.monotonic(), self.spool.counts.of(State.QUE))

    def run_now(self, msg_id: str) -> None:
        """Let a message in que run before all others."""
        self.backlog.run_now(msg_id)
        self.wake()

    def discard(self, msg_id: str) -> None:
        """Remove a message that does not run; WrongState while a copy of it, with its
        attachments, is still to be handed on."""
        taker = self.spool.owed.taker_of(msg_id)
        if taker is not None:
            raise WrongState(f"msg has still to be handed on to {taker}")
        self.backlog.remove(msg_id)
        self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
        self.wake()

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
        self.config = config
        self.script.replace(config.script)
        self.argv_prefix = config.argv_prefix
        self.base_env = environment.fixed(self.root.path, self.main, config)
        log.info("config read again")
        self.backlog.reload(config)
        self.wake()
        return True
