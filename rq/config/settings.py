"""The table of settings: each with its type, its default, and what it may be.

A setting is declared here, and docs/reference/configuration.md has a row for it. What reads
a config file, `rq config show` and what pages and the API show of a queue take the settings
from these two classes; only what acts on a setting names it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from rq import names
from rq.config import checks, notices, retries, values
from rq.config.notices import Notice
from rq.errors import BadInput
from rq.message import limits
from rq.message.retry import Retry
from rq.proc import users

DEFAULT_PORT = 3333
API_EXEC_PREFIX = "bash -lc "
WORKER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


T = TypeVar("T")
Check: TypeAlias = Callable[
    [object], object
]  # the value, or an error that says why not


def setting(default: T, check: Check, kind: str) -> T:
    """Declare a setting: its default, what it may be, and the word of the reference for
    what it is."""
    return field(default=default, metadata={"check": check, "kind": kind})


def setting_of(default: Callable[[], T], check: Check, kind: str) -> T:
    """As `setting`, with a default that is made for each config."""
    return field(default_factory=default, metadata={"check": check, "kind": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class RootConfig:
    """config/config.json: in force from a start to the next."""

    # exported as RQ_ENV
    env: str = setting("development", checks.text, "text")
    # host part of full message ids
    host: str = setting("127.0.0.1", checks.host, "text")
    # of full message ids and of the web
    port: int = setting(DEFAULT_PORT, values.whole(1, 65535), "whole")
    # address the web listens on
    addr: str = setting("127.0.0.1", checks.text, "text")
    # becomes TMPDIR of workers
    tmpdir: str | None = setting(None, checks.text, "text")
    # URL prefix, one slash at each end
    relative_root: str = setting("/", checks.relative_root, "text")
    # queues may be made by web
    allow_new_queue: bool = setting(False, checks.flag, "flag")
    # its members may ask all of RQ's sockets
    admin_group: str | None = setting(None, checks.text, "text")
    basic_auth: Mapping[str, Any] | None = setting(None, values.json_object, "object")
    allowed_ips: tuple[str, ...] = setting((), checks.texts, "list")
    # Hosts whose relays may send to queues that act with RQ's rights (`rq.message.guarded`).
    trusted_relays: tuple[str, ...] = setting((), checks.texts, "list")
    # anybody who reaches the web may do anything
    open_without_auth: bool = setting(False, checks.flag, "flag")
    # Users and groups of this machine that need no login over loopback: name and role.
    local_users: Mapping[str, str] = setting_of(dict, checks.roles_of_names, "names")
    local_groups: Mapping[str, str] = setting_of(dict, checks.roles_of_names, "names")
    # cert and key: PEM files
    tls: Mapping[str, str] = setting_of(dict, checks.tls, "object")
    # the web is started
    web: bool = setting(True, checks.flag, "flag")
    # what is kept for questions about many messages; None: it is off
    index: Mapping[str, float] | None = setting_of(
        lambda: dict(checks.INDEX), checks.index, "object"
    )
    # processes that serve it
    web_workers: int = setting(1, values.whole(1, 64), "whole")
    # of each of these at a time; of one address half
    web_connections: int = setting(2000, values.whole(8, 100_000), "whole")
    # PATH, HOME, …
    worker_env: Mapping[str, str] = setting_of(dict, checks.environment, "object")
    # seconds between TERM and KILL of a worker
    grace: float = setting(10.0, checks.seconds, "seconds")
    # below it nothing new is accepted
    min_free_bytes: int = setting(64 * 1024 * 1024, values.whole(0, 2**62), "whole")
    min_free_inodes: int = setting(2000, values.whole(0, 2**62), "whole")
    # Whom a queue tells that says nothing of it itself; `notices` has what they may be.
    on_err: Notice | None = setting(None, notices.CHECKS["on_err"], "notice")
    on_output: Notice | None = setting(None, notices.CHECKS["on_output"], "notice")
    on_recovered: Notice | None = setting(
        None, notices.CHECKS["on_recovered"], "notice"
    )
    on_slow: Notice | None = setting(None, notices.CHECKS["on_slow"], "notice")
    on_quiet: Notice | None = setting(None, notices.CHECKS["on_quiet"], "notice")
    # whom the root tells of what is badly wrong with it
    on_trouble: tuple[str, ...] = setting((), notices.whom, "list")
    # a letter each morning; None: none
    daily: notices.Daily | None = setting(None, notices.daily, "object")
    # the program that takes mail
    sendmail: str = setting("/usr/sbin/sendmail", checks.program, "path")

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
    """queue/NAME/config.json: read again while the queue runs, and in force at once."""

    name: str = setting("", checks.text, "text")
    # path; relative to the root
    script: str = setting("", checks.text, "text")
    # messages that run at the same time
    num_workers: int = setting(1, values.whole(0, 1024), "whole")
    # put before the script, split like a shell
    exec_prefix: str = setting(API_EXEC_PREFIX, checks.prefix, "text")
    env_vars: Mapping[str, str] = setting_of(dict, checks.environment, "object")
    # equal waiting messages run once
    coalesce_params: tuple[int, ...] = setting((), values.param_numbers, "list")
    # equal messages not at the same time
    blocking_params: tuple[int, ...] = setting((), values.param_numbers, "list")
    # Of equal messages so many run at the same time: `params` and `max`.
    concurrency: Mapping[str, Any] = setting_of(dict, checks.concurrency, "object")
    # So many messages start in a time: `number`, `per` and `burst`.
    rate: Mapping[str, Any] = setting_of(dict, checks.rate, "object")
    # messages take turns by their values
    fair_params: tuple[int, ...] = setting((), values.param_numbers, "list")
    # equal ones stand once
    unique: Mapping[str, Any] = setting_of(dict, checks.unique, "object")
    nice: int = setting(19, values.whole(-20, 19), "whole")
    # or "copy": attachments of clones are files of their own
    clone: str = setting("link", checks.clone, "text")
    # processes that outlive their script are left alone
    leave_children: bool = setting(False, checks.flag, "flag")
    # a process for each message; or "persistent"
    worker: str = setting(checks.ONCE, checks.worker, "text")
    # a persistent one is renewed after so many
    worker_messages: int = setting(10_000, values.whole(1, 2**31), "whole")
    # and when it has lived so long
    worker_seconds: float = setting(3600.0, checks.seconds, "seconds")
    # each message of a persistent one gets its directory
    worker_dir: bool = setting(True, checks.flag, "flag")
    # whom scripts run as, where RQ runs as root; "": as RQ
    user: str = setting("", checks.account, "text")
    # in place of the first group of that user
    group: str = setting("", checks.account, "text")
    # of scripts, in octal digits; "": as RQ
    umask: str = setting("", checks.umask, "text")
    # no program that a script starts gains rights
    no_new_privs: bool = setting(False, checks.flag, "flag")
    # or "exit": of a script that says nothing, its exit status
    success: str = setting(checks.WORD, checks.success, "text")
    # many messages, one process
    batch: Mapping[str, Any] = setting_of(dict, checks.batch, "object")
    # `hide`: params that the root's index does not keep
    index: Mapping[str, Any] = setting_of(dict, checks.hidden, "object")
    # messages are leased to workers elsewhere
    pull: checks.Pull | None = setting(None, checks.pull, "object")
    # which failed attempts are made again, and when
    retry: Retry | None = setting(None, retries.check, "object")
    # where its jobs run
    spark: Mapping[str, Any] = setting_of(dict, checks.spark, "object")
    # seconds; None here and below: no limit
    timeout: float | None = setting(None, limits.CHECKS["timeout"], "seconds")
    # seconds from TERM to KILL; None: as in the root's
    grace: float | None = setting(None, limits.CHECKS["grace"], "seconds")
    # seconds after `due`: not started later
    deadline: float | None = setting(None, limits.seconds, "seconds")
    # an attempt that runs so many times its p95 is told of; 0: none is
    long_run: float = setting(4.0, checks.times, "number")
    # seconds of silence
    heartbeat: float | None = setting(None, limits.CHECKS["heartbeat"], "seconds")
    # seconds with nothing to do, after which its process ends; None: it stays
    park: float | None = setting(None, checks.park, "seconds")
    # bytes
    memory: int | None = setting(None, limits.CHECKS["memory"], "bytes")
    cpu_seconds: int | None = setting(None, limits.CHECKS["cpu_seconds"], "whole")
    open_files: int | None = setting(None, limits.CHECKS["open_files"], "whole")
    processes: int | None = setting(None, limits.CHECKS["processes"], "whole")
    # that are kept of the log of an attempt
    log_bytes: int | None = setting(None, limits.CHECKS["log_bytes"], "bytes")
    retention: Mapping[str, Mapping[str, float]] = setting_of(
        lambda: dict(checks.RETENTION), checks.retention, "object"
    )
    # whom to tell; None: as the root says
    on_err: Notice | None = setting(None, notices.CHECKS["on_err"], "notice")
    on_output: Notice | None = setting(None, notices.CHECKS["on_output"], "notice")
    on_recovered: Notice | None = setting(
        None, notices.CHECKS["on_recovered"], "notice"
    )
    on_slow: Notice | None = setting(None, notices.CHECKS["on_slow"], "notice")
    on_quiet: Notice | None = setting(None, notices.CHECKS["on_quiet"], "notice")

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


def checks_of(kind: type[RootConfig] | type[QueueConfig]) -> dict[str, Check]:
    """Return what each setting may be, by the names of the settings."""
    return {setting.name: setting.metadata["check"] for setting in fields(kind)}


ROOT, QUEUE = checks_of(RootConfig), checks_of(QueueConfig)
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


def load_ahead() -> None:
    """Load the libraries that `default_worker_env` needs, in a process that forks those who
    call it: each of them would take some milliseconds for it, and memory of its own. What
    they answer stays theirs: a user, or the zone of this machine, may change meanwhile."""
    from rq import zones

    with contextlib.suppress(OSError):
        default_worker_env()
    _zone.cache_clear()
    zones.forget()


@functools.cache
def _zone() -> str:
    """Return the zone of this machine; "" when it does not say: scripts then go by what
    the C library finds, as all other programs do."""
    from rq import zones  # which takes its time, and RQ asks once at most

    try:
        return zones.of_machine(time.time(), os.environ)
    except BadInput:
        return os.environ.get("TZ", "")
