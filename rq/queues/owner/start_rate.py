"""The rate at which messages of a queue may start: the rule of `schedule.rate`, and the
past that the journal tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rq.logs import fields
from rq.queues.schedule import rate
from rq.queues.schedule.rate import Bucket
from rq.spool import Spool, journal_search

_log = logging.getLogger(__name__)


class StartRate:
    """The tokens that messages of a queue take when they start."""

    def __init__(self, spool: Spool, setting: Mapping[str, Any]) -> None:
        self._spool = spool
        self._bucket: Bucket | None = None
        wanted = rate.rate(setting)
        if wanted is not None:
            now = spool.clock()
            since, starts = self._past(now - wanted.looks_back)
            self._bucket = rate.rebuilt(wanted, since, starts, now)

    def _past(self, since: float) -> journal_search.Claims:
        spool = self._spool
        try:
            return journal_search.claims(spool.queue, spool.journal_id, since)
        except OSError as error:
            about = fields(queue=spool.queue.name, reason=error)
            _log.warning(
                "the last starts cannot be read, so there is a pause: %s", about
            )
            return journal_search.Claims(spool.clock(), [])

    def reload(self, setting: Mapping[str, Any]) -> None:
        """Go on by another setting, with the tokens that there are."""
        wanted, now = rate.rate(setting), self._spool.clock()
        if wanted is None:
            self._bucket = None
        elif self._bucket is None:
            self._bucket = Bucket(wanted)
        elif wanted != self._bucket.rate:
            self._bucket = self._bucket.other(wanted, now)

    def next(self, now: float) -> float:
        """Return when a message may start: now, or later."""
        return now if self._bucket is None else self._bucket.next(now)

    def take(self, now: float) -> None:
        """Count a message that starts."""
        if self._bucket is not None:
            self._bucket.take(now)
