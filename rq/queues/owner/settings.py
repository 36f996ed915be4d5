"""The settings in force: of the root, which stay, and of the queue, which may change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from rq import config
from rq.config import notices, recipients
from rq.config.notices import Matter, Notice
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import BadConfig, CannotRead
from rq.layout import Root
from rq.message import limits
from rq.queues.owner.health import Health
from rq.scripts import environment

NOTICE = "notice"  # the queue that brings notices to people

log = logging.getLogger(__name__)


class Settings:
    """What the configuration says; BadConfig when it cannot be read at a start."""

    def __init__(self, root: Root, name: str) -> None:
        self.root = root
        self.name = name
        self.main = config.read_root(root)
        self._take(config.read_queue(root.queue(name)))

    def _take(self, queue: QueueConfig) -> None:
        self.queue = queue
        self.argv_prefix = queue.argv_prefix
        self.grace = self.main.grace if queue.grace is None else queue.grace
        self.limits = limits.stricter(queue.limits, {"grace": self.grace})
        self.notices = _notices(self.name, self.main, queue)
        self._complain_of_recipients(queue)
        self.environment = environment.fixed(self.root.path, self.main, queue)

    def _complain_of_recipients(self, queue: QueueConfig) -> None:
        """Log recipients that do not exist: its notices are tried again for days, and
        fail."""
        for settings in (queue, self.main) if self.notices else ():
            for why in recipients.lacking(self.root, settings):
                log.warning("%s", why)

    def read_again(self, health: Health) -> bool | None:
        """Read the queue's config; a bad one leaves the old one in force. Return whether
        it has changed; None: what it says now is not known yet."""
        try:
            queue = config.read_queue(self.root.queue(self.name))
        except BadConfig as error:
            if health.config != str(error):
                log.error("%s; the queue goes on with its old config", error)
            health.config = str(error)
            return None if isinstance(error, CannotRead) else False
        health.config = None
        if queue == self.queue:
            return False
        self._take(queue)
        log.info("config read again")
        return True


def _notices(
    name: str, main: RootConfig, queue: QueueConfig
) -> Mapping[Matter, Notice]:
    """Return whom a queue tells of what; the queue that tells others tells of nothing
    itself."""
    if name == NOTICE:
        return {}
    return notices.wanted(partial(getattr, queue), partial(getattr, main))
