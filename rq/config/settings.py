"""Every setting, and what it is when the config files say nothing of it.

What each may be is in `checks`.
"""

from __future__ import annotations

import functools
import os
import shlex
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from rq import names, users
from rq.config.notices import Notice
from rq.errors import BadInput
from rq.message import limits
from rq.message.retry import Retry

DEFAULT_PORT = 3333
API_EXEC_PREFIX = "bash -lc "
ONCE, PERSISTENT = "once", "persistent"  # kinds of workers
WORD, EXIT = "word", "exit"  # what says how a script has ended
WORKER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Pull(TypedDict):
    """The setting `pull`."""

    max: int  # leases at a time
    seconds: int  # of each, unless its worker says others
    share_script: bool  # `GET script` gives the queue's directory
    fetch: bool  # agents fetch attachments
    result_files: int  # that an attempt hands in at most
    result_bytes: int  # of all these


PULL: Pull = {
    "max": 1000,
    "seconds": 60,
    "share_script": False,
    "fetch": True,
    "result_files": 100,
    "result_bytes": 1024**3,
}
LEASES, LEASE_SECONDS = 100_000, 86_400  # the most of `max` and `seconds`
RESULT_FILES, RESULT_BYTES = 100, 2**53  # the most of `result_files`, `result_bytes`

# Per kind of what has ended: `days`, `count` and `bytes` of the newest that are kept.
# Errors that nobody has acknowledged are none of these. A relay's receiver remembers
# for 30 days by its history.
RETENTION: Mapping[str, Mapping[str, float]] = {
    "done": {"days": 7},
    "relayed": {"days": 7},
    "dismissed": {"days": 30},
    "history": {"days": 35},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RootConfig:
    """config/config.json."""

    env: str = "development"  # exported as RQ_ENV
    host: str = "127.0.0.1"  # host part of full message ids
    port: int = DEFAULT_PORT  # of full message ids and of the web
    addr: str = "127.0.0.1"  # address the web listens on
    tmpdir: str | None = None  # becomes TMPDIR of workers
    relative_root: str = "/"  # URL prefix, one slash at each end
    allow_new_queue: bool = False  # queues may be made by web
    admin_group: str | None = None  # its members may ask all of RQ's sockets
    basic_auth: Mapping[str, Any] | None = None
    allowed_ips: tuple[str, ...] = ()
    # Hosts whose relays may send to queues that act with RQ's rights (`rq.guarded`).
    trusted_relays: tuple[str, ...] = ()
    open_without_auth: bool = False  # anybody who reaches the web may do anything
    # Users and groups of this machine that need no login over loopback: name and role.
    local_users: Mapping[str, str] = field(default_factory=dict)
    local_groups: Mapping[str, str] = field(default_factory=dict)
    tls: Mapping[str, str] = field(default_factory=dict)  # cert and key: PEM files
    web: bool = True  # the web is started
    web_workers: int = 1  # processes that serve it
    web_connections: int = 2000  # of each of these at a time; of one address half
    worker_env: Mapping[str, str] = field(default_factory=dict)  # PATH, HOME, …
    grace: float = 10.0  # seconds between TERM and KILL of a worker
    min_free_bytes: int = 64 * 1024 * 1024  # below it nothing new is accepted
    min_free_inodes: int = 2000
    # Whom a queue tells that says nothing of it itself; `notices` has what they may be.
    on_err: Notice | None = None
    on_output: Notice | None = None
    on_recovered: Notice | None = None
    on_slow: Notice | None = None
    on_quiet: Notice | None = None
    sendmail: str = "/usr/sbin/sendmail"  # the program that takes mail

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def base_url(self) -> str:
        """`http://HOST:PORT/` with the relative root, ending in a slash."""
        return self._url(self.host)

    @property
    def page_url(self) -> str:
        """Where a browser on this machine finds the web: a number for loopback, since
        `localhost` may lead to a server of another user."""
        everywhere = self.addr in ("", "0.0.0.0", "::")
        name = self.host if everywhere else self.addr
        return self._url("127.0.0.1" if name.lower() == "localhost" else name)

    def _url(self, name: str) -> str:
        place = names.host_port(name, self.port)
        return f"{self.scheme}://{place}{self.relative_root}"

    def queue_url(self, queue: str) -> str:
        """Where workers elsewhere ask for the messages of a queue."""
        return f"{self.base_url}q/{queue}"

    def full_id(self, queue: str, msg_id: str) -> str:
        return f"{self.queue_url(queue)}/{msg_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """queue/NAME/config.json."""

    name: str = ""
    script: str = ""  # path; relative to the root
    num_workers: int = 1  # messages that run at the same time
    exec_prefix: str = API_EXEC_PREFIX  # put before the script, split like a shell
    env_vars: Mapping[str, str] = field(default_factory=dict)
    coalesce_params: tuple[int, ...] = ()  # equal waiting messages run once
    blocking_params: tuple[int, ...] = ()  # equal messages not at the same time
    # Of equal messages so many run at the same time: `params` and `max`.
    concurrency: Mapping[str, Any] = field(default_factory=dict)
    # So many messages start in a time: `number`, `per` and `burst`.
    rate: Mapping[str, Any] = field(default_factory=dict)
    fair_params: tuple[int, ...] = ()  # messages take turns by their values
    unique: Mapping[str, Any] = field(default_factory=dict)  # equal ones stand once
    nice: int = 19
    clone: str = "link"  # or "copy": attachments of clones are files of their own
    leave_children: bool = False  # processes that outlive their script are left alone
    worker: str = ONCE  # a process for each message; or "persistent"
    worker_messages: int = 10_000  # a persistent one is renewed after so many
    worker_seconds: float = 3600.0  # and when it has lived so long
    worker_dir: bool = True  # each message of a persistent one gets its directory
    user: str = ""  # whom scripts run as, where RQ runs as root; "": as RQ
    group: str = ""  # in place of the first group of that user
    umask: str = ""  # of scripts, in octal digits; "": as RQ
    no_new_privs: bool = False  # no program that a script starts gains rights
    success: str = WORD  # or "exit": of a script that says nothing, its exit status
    batch: Mapping[str, Any] = field(default_factory=dict)  # many messages, one process
    pull: Pull | None = None  # messages are leased to workers elsewhere
    retry: Retry | None = None  # which failed attempts are made again, and when
    spark: Mapping[str, Any] = field(default_factory=dict)  # where its jobs run
    timeout: float | None = None  # seconds; None here and below: no limit
    grace: float | None = None  # seconds from TERM to KILL; None: as in the root's
    deadline: float | None = None  # seconds after `due`: not started later
    heartbeat: float | None = None  # seconds of silence
    memory: int | None = None  # bytes
    cpu_seconds: int | None = None
    open_files: int | None = None
    processes: int | None = None
    log_bytes: int | None = None  # that are kept of the log of an attempt
    retention: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: dict(RETENTION)
    )
    on_err: Notice | None = None  # whom to tell; None: as the root says
    on_output: Notice | None = None
    on_recovered: Notice | None = None
    on_slow: Notice | None = None
    on_quiet: Notice | None = None

    @property
    def argv_prefix(self) -> list[str]:
        return shlex.split(self.exec_prefix)

    @property
    def limits(self) -> dict[str, float | None]:
        """Return what limits its attempts, by the names of the settings."""
        return {name: getattr(self, name) for name in limits.NAMES}

    @property
    def limited_params(self) -> tuple[int, ...]:
        """The params of which only so many equal messages run at the same time."""
        params: tuple[int, ...] = self.concurrency.get("params", self.blocking_params)
        return params

    @property
    def most_of_key(self) -> int:
        """How many of these run at the same time."""
        most: int = self.concurrency.get("max", 1)
        return most

    def to_json(self) -> dict[str, object]:
        """Return the keys the ancestor shows, and the others that are not default."""
        settings: dict[str, object] = {}
        default = QueueConfig()
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            if name in _ANCESTOR_KEYS or value != getattr(default, name):
                settings[name] = list(value) if isinstance(value, tuple) else value
        return settings


_ANCESTOR_KEYS = frozenset(
    {
        "name",
        "script",
        "num_workers",
        "exec_prefix",
        "env_vars",
        "coalesce_params",
        "blocking_params",
    }
)


def default_worker_env() -> dict[str, str]:
    """Return the environment that workers start with, kept in the config for good."""
    user = users.user_of(os.getuid(), os.getgid())
    zone = _zone()
    return {
        "PATH": WORKER_PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "LANG": "C.UTF-8",
        **({"TZ": zone} if zone else {}),
        "TMPDIR": tempfile.gettempdir(),
    }


@functools.cache
def _zone() -> str:
    """Return the zone of this machine; "" when it does not say: scripts then go by what
    the C library finds, as all other programs do."""
    from rq import zones  # which takes its time, and RQ asks once at most

    try:
        return zones.of_machine(time.time(), os.environ)
    except BadInput:
        return os.environ.get("TZ", "")
