"""Whom the scripts of a queue run as now: looked at again every few seconds, because a
file, an account or a right may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rq import config
from rq.config import trust
from rq.config.settings import QueueConfig
from rq.errors import BadConfig
from rq.layout import Root
from rq.scripts import run_as
from rq.scripts.run_as import AS_RQ, RunAs

LOOK = 5.0  # seconds that a look holds


def resolve(root: Root, name: str, settings: QueueConfig) -> RunAs:
    """Return whom scripts run as; BadConfig when what the config says is not obeyed."""
    return run_as.resolve(settings, _files(root, name), trust.others_may_write)


def _files(root: Root, name: str) -> list[Path]:
    """Return all that the config of a queue was made of: its own file, and that of the
    definition which a link in scandir/ leads to."""
    queue = root.queue(name)
    files = [queue.config]
    if queue.scandir_mark.exists():
        mark = config.read_json(queue.scandir_mark)
        if mark.get("owner") == "scandir":
            files += [queue.scandir_mark, root.scandir / name / "config.json"]
    return files


class Identity:
    """Whom the scripts of one queue run as."""

    def __init__(
        self,
        root: Root,
        name: str,
        settings: Callable[[], QueueConfig],
        let_pass: Callable[[], None],
    ) -> None:
        """`let_pass` opens the way to the directories that its user works in."""
        self._root = root
        self._name = name
        self._settings = settings
        self._let_pass = let_pass
        self.now = AS_RQ
        self._until = 0.0
        self._of: QueueConfig | None = None  # that was looked at
        self._why = ""

    def why_not(self) -> str:
        """Return why no script may start; "" when they may, as `now` says."""
        settings = self._settings()
        if not (settings.user or settings.umask or settings.no_new_privs):
            self.now, self._of = AS_RQ, None
            return ""
        moment = time.monotonic()
        if settings is not self._of or moment >= self._until:
            self._until, self._of = moment + LOOK, settings
            self._why = self._look(settings)
        return self._why

    def _look(self, settings: QueueConfig) -> str:
        try:
            self.now = resolve(self._root, self._name, settings)
            if self.now.user is None:
                return ""
            self._let_pass()
        except BadConfig as error:
            return str(error)
        except OSError as error:
            return f"user is {settings.user}: {error.filename}: {error.strerror}"
        return self._closed(settings)

    def _closed(self, settings: QueueConfig) -> str:
        user = self.now.user
        assert user is not None
        script = str(self._root.path / settings.script)
        places = [(str(self._root.queue(self._name).path / "run"), False)]
        places += [(script, True)] if not settings.argv_prefix else []
        for path, is_program in places:
            if closed := run_as.closed_to(user, path, program=is_program):
                return (
                    f"user is {user.name}, to whom {closed} is closed: chmod o+"
                    f"{'rx' if is_program and closed == path else 'x'} {closed}"
                )
        return ""
