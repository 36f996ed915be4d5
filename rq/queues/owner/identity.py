"""The user that the scripts of a queue run as now: looked at again every few seconds,
because a file, an account or a right may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable

from rq.config.settings import QueueConfig
from rq.errors import BadConfig
from rq.layout import Root
from rq.scripts import obeyed
from rq.scripts.run_as import AS_RQ

LOOK = 5.0  # seconds that a look holds


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
            self.now = obeyed.resolve(self._root, self._name, settings)
            if self.now.user is None:
                return ""
            self._let_pass()
        except BadConfig as error:
            return str(error)
        except OSError as error:
            return f"user is {settings.user}: {error.filename}: {error.strerror}"
        return obeyed.closed(self._root, self._name, settings, self.now)
