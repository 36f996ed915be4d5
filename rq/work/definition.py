"""The script that an agent starts, and its settings, as their directory says now.

The directory is one as in `scandir/`: `run`, and perhaps `config.json`.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rq import config
from rq.config.checks import PERSISTENT
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import BadConfig, BadInput, NotPermitted
from rq.message.message import Message
from rq.outbound import peers
from rq.outbound.peers import Target
from rq.proc.family import Family
from rq.scripts import environment, program_file
from rq.scripts.program import Program

_OF_USERS = ("user", "group", "umask", "no_new_privs")
LOOK = 1.0  # seconds that a look at the directory holds

log = logging.getLogger(__name__)


class Definition:
    """What is started for the messages of a queue."""

    def __init__(self, directory: Path, place: Path, to: Target) -> None:
        """`place`: the agent's directory, which scripts know as RQ_ROOT. BadConfig when
        nothing can be started."""
        self._directory = directory
        self._place = place
        self._name = to.queue
        self.family = Family()
        self.main = _as_there(to)
        self._config = self._read()
        self._environment = self._new_environment()
        self._look_at = 0.0
        self._stamp: object = None
        self._program = self._new_program()

    @property
    def config(self) -> QueueConfig:
        """The settings, as they were last read."""
        return self._config

    @property
    def is_persistent(self) -> bool:
        """Whether its scripts are long-lived workers."""
        return self._config.worker == PERSISTENT

    def follow(self, base_url: str, env: str) -> None:
        """Tell scripts what the queue's own host calls itself."""
        main = _named(base_url, env) or self.main
        if main != self.main:
            self.main = main
            self._environment = self._new_environment()
            self._program = self._new_program()

    def use(self, directory: Path) -> None:
        """Start the script of another directory from now on."""
        self._directory = directory
        self._look_at = 0.0

    def program(self) -> Program:
        """Return the script as it is started now; OSError when it cannot be."""
        now = time.monotonic()
        if now >= self._look_at:
            self._refresh()
            self._look_at = now + LOOK  # a look that fails is taken again at once
        return self._program

    def _refresh(self) -> None:
        run = self._directory / "run"
        stamp = config.stamp(run), config.stamp(self._directory / "config.json"), run
        if stamp == self._stamp:
            return
        self.check()
        try:
            self._config = self._read()
        except BadConfig as error:
            log.error("%s; the agent goes on with the settings from before", error)
        except NotPermitted as error:  # the settings from before would run it as root
            raise OSError(errno.EPERM, str(error), run) from None
        self._stamp = stamp
        self._environment = self._new_environment()
        self._program = self._new_program()

    def check(self) -> None:
        """OSError when the script does not look as if it could be started."""
        run = str(self._directory / "run")
        if why := program_file.unfit(run):
            raise OSError(errno.ENOEXEC, why, run)

    def _read(self) -> QueueConfig:
        path = self._directory / "config.json"
        given = config.read_json(path) if path.exists() else {}
        kept = {key: value for key, value in given.items() if value is not None}
        _leave_out_user(kept, path)
        run = str(self._directory / "run")
        merged = {"exec_prefix": "", **kept, "name": self._name, "script": run}
        settings = config.queue_config(merged, path)
        if settings.batch:
            raise BadConfig(f"{path}: batch is for scripts on the queue's own host")
        return settings

    def _new_environment(self) -> Mapping[str, str]:
        return environment.fixed(self._place, self.main, self._config)

    def _new_program(self) -> Program:
        return Program(
            path=os.path.realpath(self._directory / "run"),
            argv_prefix=self._config.argv_prefix,
            env=self._environment,
            nice=self._config.nice,
            family=self.family,
        )

    @property
    def wants_folder(self) -> bool:
        """Whether each message gets a folder, also one without attachments."""
        return self._config.worker_dir or not self.is_persistent

    def values(self, message: Message, directory: str | None) -> dict[str, str]:
        """Return what a script is told of a message."""
        return environment.of_message(self.main, self._name, message, directory)


def check_user(user: str, whose: str) -> None:
    """NotPermitted when the scripts of `whose` run as a user, and we would start them as
    root. Producers choose what such a script is given, and its author counted on
    another user's rights. An agent that root starts could become that user; it would be
    the user of that name on this machine, who may be another one than on the queue's."""
    if user and os.geteuid() == 0:
        raise NotPermitted(
            f"{whose} says user {user}, and scripts would run here as root: start the "
            "agent as that user"
        )


def _leave_out_user(given: dict[str, object], path: Path) -> None:
    """Take out, and say so, whom scripts run as on the queue's own host; NotPermitted
    when they would run as root instead."""
    check_user(str(given.get("user") or ""), str(path))
    ignored = [name for name in _OF_USERS if given.pop(name, None)]
    if ignored:
        log.warning(
            "%s says %s, which an agent ignores: scripts run as the user who started it",
            path,
            ", ".join(ignored),
        )


def _as_there(to: Target) -> RootConfig:
    """Return what a host is called by its URL."""
    return RootConfig(
        host=to.host,
        port=to.port,
        relative_root=f"{to.prefix}/",
        tls={"cert": "", "key": ""} if to.scheme == "https" else {},
    )


def _named(base_url: str, env: str) -> RootConfig | None:
    """Return what a host calls itself; None when it does not say, or no URL."""
    try:
        to = peers.origin(base_url)
        prefix = urlsplit(base_url).path.rstrip("/")
    except (BadInput, ValueError):
        return None
    tls = {"cert": "", "key": ""} if to.scheme == "https" else {}
    kept = env if env and env.isprintable() and len(env) <= 64 else "development"
    return RootConfig(
        host=to.host, port=to.port, relative_root=f"{prefix}/", tls=tls, env=kept
    )
