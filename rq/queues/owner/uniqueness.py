"""Equal messages stand once: the rule of `schedule.unique`, applied to a queue.

`way` is asked in the very step in which a message is accepted: between the two nothing
may be awaited, or an equal one comes in.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rq.config.settings import QueueConfig
from rq.errors import Busy, NotUnique, Unread
from rq.message.message import Message
from rq.queues.schedule import unique
from rq.queues.schedule.unique import Conflict, Holders, Rule, Scope
from rq.spool import Spool
from rq.spool.entry import Entry
from rq.spool.uniques import Keys

MOST_REPLACED = 1000  # by one message; more wait only where the setting is new

log = logging.getLogger(__name__)


def keys(config: QueueConfig) -> Keys | None:
    """Return how a queue makes its unique keys; None: it has none."""
    rule = unique.rule(config.unique)
    if rule is None:
        return None
    key_of = functools.partial(_key, rule)
    return Keys(key_of, rule.params, rule.scope is Scope.WINDOW)


def _key(rule: Rule, message: Message) -> str | None:
    return unique.key(rule, message.params, message.unique_key, message.by)


@dataclass(frozen=True, slots=True)
class Way:
    """What the rule makes of a message in whose way others stand."""

    joins: str | None = None  # it is not accepted: this one stands for it
    replaces: Sequence[str] = ()  # it is, and these are removed


FREE = Way()


class Uniqueness:
    """The rule of a queue, and its messages."""

    def __init__(self, spool: Spool, config: QueueConfig) -> None:
        self._spool = spool
        self.rule = unique.rule(config.unique)
        self._fill()

    def reload(self, config: QueueConfig) -> None:
        """Go on by another rule. It is asked of what comes from now on."""
        rule = unique.rule(config.unique)
        if rule == self.rule:
            return
        self.rule, self._spool.uniques.keys = rule, keys(config)
        try:
            self._fill()
        except Unread as error:
            log.error("some messages have no unique key until a restart: %s", error)

    def _fill(self) -> None:
        uniques, spool = self._spool.uniques, self._spool
        live = ((msg_id, spool.entry(msg_id)) for msg_id in spool.live())
        uniques.fill(live, spool.read)

    @property
    def on(self) -> bool:
        return self.rule is not None

    # ---- who stands in the way

    def way(self, message: Message) -> Way:
        """Return what becomes of a message that is about to be accepted; NotUnique: it
        is refused."""
        rule = self.rule
        if rule is None or not (key := self._spool.uniques.key_in(message)):
            return FREE
        if rule.conflict is Conflict.REPLACE:
            return self._replaces(key, message.msg_id)
        stands = self._stands(rule, key)
        if stands is None or stands == message.msg_id:
            return FREE
        if rule.conflict is Conflict.REJECT:
            raise self._not_unique(stands)
        return Way(joins=stands)

    def check_retry(self, message: Message) -> None:
        """NotUnique when a message that has ended may not go back to que, because an
        equal one stands there. None is replaced: what waits is newer. A window is not
        asked: nothing new is accepted."""
        rule = self.rule
        if rule is None or not (key := self._spool.uniques.key_in(message)):
            return
        stands = None if rule.scope is Scope.WINDOW else self._stands(rule, key)
        if stands is not None and stands != message.msg_id:
            raise self._not_unique(stands, "run again")

    def check_together(self, ids: Sequence[str]) -> None:
        """NotUnique when messages in prep cannot all be accepted: an equal one stands in
        the way of one of them, or two of them are equal. Their keys are known."""
        rule = self.rule
        if rule is None:
            return
        seen: dict[str, str] = {}
        entry, is_free = self._spool.entry, self._spool.uniques.is_free
        for msg_id in ids:
            key = entry(msg_id).unique
            if not key:
                continue
            other = seen.setdefault(key, msg_id)
            if other != msg_id and rule.scope is not Scope.RUNNING:
                raise NotUnique(
                    f"messages {other} and {msg_id} of the transaction are equal, and "
                    "this queue takes one of those (unique): leave one out",
                    other,
                )
            if is_free(key):
                continue
            stands = self._stands(rule, key)
            if stands is not None:
                raise self._not_unique(stands, f"accepted with message {msg_id}")

    def learn(self, msg_id: str) -> None:
        """Know the key of a message in prep. Unread: not for now."""
        if self.rule is not None:
            spool = self._spool
            entry: Entry = spool.entry(msg_id)
            spool.uniques.key_of(msg_id, entry, spool.read)

    def forget(self, key: str, now: float) -> None:
        """Forget who was accepted last under a key, if its window is over."""
        seconds = 0.0 if self.rule is None else self.rule.seconds
        self._spool.uniques.forget(key, now, seconds)

    def _stands(self, rule: Rule, key: str) -> str | None:
        uniques, now = self._spool.uniques, self._spool.clock()
        if rule.scope is not Scope.WINDOW:
            waits, runs = uniques.waiting.first(key), uniques.running.first(key)
            return unique.in_the_way(rule, Holders(waits, runs), now)
        last = uniques.last.get(key)
        if last is None:
            return None
        if last.at > now:  # the clock was set back
            uniques.accepted(key, last.msg_id, now)
        return unique.in_the_way(rule, Holders(last=last.msg_id, last_at=last.at), now)

    def _replaces(self, key: str, msg_id: str) -> Way:
        waiting = self._spool.uniques.waiting.some(key, MOST_REPLACED)
        replaced = [other for other in waiting if other != msg_id]
        for other in replaced:
            taker = self._spool.owed.taker_of(other)
            if taker is not None:
                raise Busy(f"message {other} has still to be handed on to {taker}")
        return Way(replaces=replaced)

    def _not_unique(self, stands: str, what: str = "accepted") -> NotUnique:
        entry = self._spool.entry_of(stands)
        where = f"is in {entry.state}" if entry is not None else "has ended"
        return NotUnique(
            f"not {what}: message {stands} is equal, and {where} (unique)", stands
        )
