"""Every path: where things are in a root and in a queue directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rq.words.states import HASHED, State

STATE_DIRS = ("prep", "que", "run", "done", "relayed", "err")
JOURNAL = "journal"
HISTORY = "history"
QUEUE_DIRS = (*STATE_DIRS, "new", "gone", JOURNAL, HISTORY, "lease", "batch")
LEASE_FD = 963
MSG = "msg"
STATUS = "status"
ATTEMPTS = "attempts"  # of a message: N.json of each
ATTACH = "attach"
AFTER_LIST = "after"  # the messages that have to end first, if they are many
AFTER_FILE = "after.jsonl"  # what its script is told of those that it waited for
JOB = "job"
BATCH = "batch"
BATCH_FILE = "batch.json"
STDIO_LOG = "stdio.log"
RELAY_STATE = "relay.json"  # in job/: how far a message was handed over
UPLOAD_PREFIX = ".up-"


def folder(state: State, msg_id: str) -> str:
    """Return the folder of a message, relative to its queue directory."""
    if state in HASHED:
        return f"{state}/{msg_id[0:8]}/{msg_id[9:11]}/{msg_id[11:13]}/{msg_id}"
    if state is State.DISMISSED:
        return f"err/.{msg_id}"
    return f"{state}/{msg_id}"


@dataclass(frozen=True, slots=True)
class Root:
    """The paths of one RQ installation."""

    path: Path

    @property
    def config_dir(self) -> Path:
        return self.path / "config"

    @property
    def config(self) -> Path:
        return self.path / "config" / "config.json"

    @property
    def supervisor_socket(self) -> Path:
        return self.path / "config" / "queuemgr.sock"

    @property
    def supervisor_pid(self) -> Path:
        return self.path / "config" / "queuemgr.pid"

    @property
    def supervisor_lock(self) -> Path:
        return self.path / "config" / "queuemgr.lock"

    @property
    def scandir(self) -> Path:
        return self.path / "scandir"

    @property
    def commands(self) -> Path:
        """Definitions that `rq queue new` made."""
        return self.path / "commands"

    @property
    def timers(self) -> Path:
        return self.path / "timers"

    @property
    def timers_socket(self) -> Path:
        return self.path / "timers" / "sock"

    @property
    def timers_journal(self) -> Path:
        return self.path / "config" / "timers.journal"

    @property
    def timers_fires(self) -> Path:
        """Each fire of the timers, and what became of it."""
        return self.path / "config" / "timers.fires"

    @property
    def timers_seen(self) -> Path:
        """Up to which of these lines a person has acknowledged each timer."""
        return self.path / "config" / "timers.seen"

    @property
    def told_troubles(self) -> Path:
        """Which troubles of the root were told, and are not over."""
        return self.path / "config" / "troubles.state"

    @property
    def daily_letter(self) -> Path:
        """Up to when letters of the morning were sent."""
        return self.path / "config" / "daily.state"

    @property
    def timers_state(self) -> Path:
        return self.path / "config" / "timers.state"

    @property
    def scandir_state(self) -> Path:
        return self.path / "config" / "scandir.state"

    @property
    def web_secret(self) -> Path:
        return self.path / "config" / "web.secret"

    @property
    def webhook_secret(self) -> Path:
        return self.path / "config" / "webhook.secret"

    @property
    def webhooks(self) -> Path:
        return self.path / "config" / "webhooks.json"

    @property
    def router(self) -> Path:
        """The routing rules; their existence turns routing on."""
        return self.path / "config" / "router.json"

    @property
    def peers(self) -> Path:
        """How other hosts are reached; passwords, too."""
        return self.path / "config" / "peers.json"

    @property
    def relay_hosts(self) -> Path:
        """Which hosts of its history the relay was allowed at the first start."""
        return self.path / "config" / "relay.hosts"

    @property
    def adopted(self) -> Path:
        """Since when a root is ours that another RQ has filled, and what of it waits."""
        return self.path / "config" / "adopted.json"

    @property
    def displaced(self) -> Path:
        """Queues that lost their directory."""
        return self.path / "config" / "displaced.json"

    @property
    def begun(self) -> Path:
        """Queues that have been up, and so have to be there."""
        return self.path / "config" / "begun.json"

    @property
    def tokens(self) -> Path:
        """The tokens that were given to programs, as digests."""
        return self.path / "config" / "tokens.json"

    @property
    def attempt_tokens(self) -> Path:
        """The tokens of attempts that run now, a file each."""
        return self.path / "config" / "attempts"

    @property
    def sessions(self) -> Path:
        """Who is signed in, a file each."""
        return self.path / "config" / "sessions"

    @property
    def once(self) -> Path:
        """Keys that sign in once, a file each."""
        return self.path / "config" / "once"

    @property
    def uploads(self) -> Path:
        """Where uploads lie, without a name, until an owner has copied them."""
        return self.path / "config" / "tmp"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def queues(self) -> Path:
        return self.path / "queue"

    @property
    def trash(self) -> Path:
        return self.path / "queue.trash"

    @property
    def spark(self) -> Path:
        """What Spark keeps: history in columns, and its scratch space."""
        return self.path / "spark"

    @property
    def index(self) -> Path:
        """What is read from the journals for questions about many messages."""
        return self.path / "index"

    @property
    def index_socket(self) -> Path:
        """Where owners say up to where their journals are durable."""
        return self.path / "config" / "index.sock"

    @property
    def broker(self) -> Path:
        """What the broker keeps: jobs, journal, snapshot."""
        return self.path / "broker"

    @property
    def broker_socket(self) -> Path:
        """Where the broker answers RQ's own user and root."""
        return self.path / "config" / "broker.sock"

    @property
    def broker_secret(self) -> Path:
        """The secret of the broker's cluster, where RQ itself has put it."""
        return self.path / "config" / "broker.secret"

    @property
    def broker_config(self) -> Path:
        return self.path / "config" / "broker.json"

    def queue(self, name: str) -> QueueDir:
        return QueueDir(self.path / "queue" / name)

    def down(self, name: str) -> Path:
        return self.path / "config" / f"{name}.down"

    def pause(self, name: str) -> Path:
        return self.path / "config" / f"{name}.pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalDir:
    """The paths of one journal, and what the lines of the journal itself call it."""

    path: Path  # the directory that it was made in, and is bound to
    kind: str  # with the name a field of those lines: {"queue": "mail"}
    name: str

    @property
    def active(self) -> Path:
        """The segments that are not sealed."""
        return self.path / JOURNAL

    @property
    def history(self) -> Path:
        """The sealed segments, a directory for each journal."""
        return self.path / HISTORY

    @property
    def mark(self) -> Path:
        """Names the directory that the journal was written in."""
        return self.path / JOURNAL / "mark"

    @property
    def checkpoint(self) -> Path:
        return self.path / JOURNAL / "checkpoint"


@dataclass(frozen=True, slots=True)
class QueueDir:
    """The paths of one queue."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def form(self) -> Path:
        return self.path / "form.json"

    @property
    def socket(self) -> Path:
        return self.path / "queue.sock"

    @property
    def pid(self) -> Path:
        return self.path / "queue.pid"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def rates(self) -> Path:
        """The counters of the last hour, as they were a minute ago."""
        return self.path / "rates.json"

    @property
    def parked(self) -> Path:
        """What a queue without a process has left to be read."""
        return self.path / "parked.json"

    @property
    def scandir_mark(self) -> Path:
        """Names the scandir definition that this queue belongs to, if any."""
        return self.path / "scandir.json"

    @property
    def adopted(self) -> Path:
        """Since when a queue is ours whose messages another RQ made."""
        return self.path / "adopted.json"

    @property
    def journal_dir(self) -> JournalDir:
        return JournalDir(path=self.path, kind="queue", name=self.name)

    @property
    def journal(self) -> Path:
        return self.journal_dir.active

    @property
    def history(self) -> Path:
        return self.journal_dir.history

    @property
    def checkpoint(self) -> Path:
        return self.journal_dir.checkpoint

    @property
    def index(self) -> Path:
        return self.path / JOURNAL / "index"

    def message(self, state: State, msg_id: str) -> Path:
        return self.path / folder(state, msg_id)
