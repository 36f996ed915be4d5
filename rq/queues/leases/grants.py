"""Claims due messages under leases: what a slot of the queue itself would take."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from rq.config.admin import Admin
from rq.config.checks import Pull
from rq.errors import Unread, WrongState
from rq.message import limits
from rq.message.message import Message
from rq.queues.attempts import lease as token
from rq.queues.attempts.lease import Lease
from rq.queues.owner.owner import Owner
from rq.queues.runner import claims
from rq.spool import Held, Spool
from rq.spool.record import LeaseFields

LACKS_SECONDS = 1.0  # until a message is tried again that could not be read
# Leases whose messages are kept in memory, and bytes of each; others are read again.
KEPT, KEPT_BYTES = 10_000, 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request for leases."""

    by: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A lease, and the token that its holder alone is told."""

    token: str
    lease: Lease
    message: Message


class Grants:
    """Hands out the messages of one queue."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._lacks_until = 0.0  # before then nothing is claimed
        # When there may be more to claim, as `claim` has found; None: not known.
        self.later: float | None = None
        # Whether `claim` has stopped before it has looked at all that is due.
        self.looks_on = False

    @property
    def seconds(self) -> float:
        """How long a lease lasts if the client does not say it; WrongState if there are
        none."""
        return float(self._pull["seconds"])

    @property
    def most(self) -> int:
        """How many leases may be out; 0 in a queue without leases."""
        pull = self._owner.config.pull
        return 0 if pull is None else pull["max"]

    @property
    def _pull(self) -> Pull:
        """The setting `pull`; WrongState without it."""
        pull = self._owner.config.pull
        if pull is None:
            raise WrongState(
                f'queue {self._owner.name} hands out no leases: set "pull" in its '
                "config.json"
            )
        return pull

    def why_none(self) -> str | None:
        """Return why nothing is handed out now; None: what is due is. WrongState in a
        queue without leases."""
        most, admission = self._pull["max"], self._owner.admission
        if admission.restored:
            return admission.restored
        if admission.stopping:
            return "the queue is stopping"
        if admission.admin is not Admin.UP:
            return f"the queue is {admission.admin}"
        if len(self._owner.leases) >= most:
            return f"all leases are out, {most} of them (pull.max)"
        if not admission.may_start:
            return f"nothing starts now: {admission.closed() or 'folders lag behind'}"
        return None

    def claim(self, wanted: Wanted) -> Iterator[Granted]:
        """Claim what is due, one after the other, as long as it is asked for."""
        number, self.later, self.looks_on = 0, self._owner.spool.clock(), False
        while number < wanted.count and not self._owner.spool.group_full:
            if self.why_none() is not None:
                self.later = None  # there is a turn when that changes
                return
            msg_id = self._next_due()
            if msg_id is None:
                return
            granted = self._tried(msg_id, wanted)
            if granted is not None:
                number += 1
                yield granted
            elif self._lacks_until:
                return

    def _next_due(self) -> str | None:
        """Return a message that is due; None: there is none before `later`."""
        now = self._owner.spool.clock()
        if now < self._lacks_until:
            self.later = self._lacks_until
            return None
        self._lacks_until = 0.0
        try:
            msg_id, self.later = self._owner.backlog.next_due(now)
        except Unread as error:
            self._lacks(error)
            return None
        self.looks_on = msg_id is None and self.later is not None and self.later <= now
        return msg_id

    def _tried(self, msg_id: str, wanted: Wanted) -> Granted | None:
        try:
            return self._claim(msg_id, wanted)
        except (Unread, OSError, MemoryError) as error:
            self._lacks(error)
            return None

    def _lacks(self, error: Exception) -> None:
        """Try again in a while: a message that is due cannot be read for now."""
        self.later = self._lacks_until = self._owner.spool.clock() + LACKS_SECONDS
        log.warning("a message cannot be leased for now: %s", error)

    def _claim(self, msg_id: str, wanted: Wanted) -> Granted | None:
        owner = self._owner
        backlog, spool = owner.backlog, owner.spool
        entry = spool.entry(msg_id)
        try:
            line = self._line(msg_id, wanted)
        except (Unread, OSError):
            backlog.put_back(msg_id)
            raise
        wait_us, group = entry.waited_us(spool.clock()), entry.key
        secret = token.new_token(msg_id, entry.attempt + 1)
        line["hash"] = token.digest(secret)
        claim = functools.partial(spool.lease, msg_id, line, self._lasts)
        message = claims.take(owner, msg_id, claim)
        if message is None:
            return None
        if not message.attachments:
            spool.rest(msg_id)  # its folder is not needed yet
        backlog.gather_riders(msg_id, group)
        backlog.started(line.get("key"), msg_id, spool.clock())
        lease = self._lease(message, wanted, wait_us)
        lease.size, lease.own_limits = len(message.encode()), message.limits
        if lease.size <= KEPT_BYTES and len(owner.leases) < KEPT:
            lease.message = message
        owner.leases.add(lease)
        return Granted(token=secret, lease=lease, message=message)

    def _lasts(self, message: Message) -> float | None:
        """Return after how many seconds an attempt is ended, whatever is renewed."""
        held = limits.of(self._owner.settings.limits, message.limits)
        return None if held.timeout is None else held.timeout + (held.grace or 0.0)

    def _line(self, msg_id: str, wanted: Wanted) -> LeaseFields:
        """Return what the claim's line tells; Unread: that is not known for now."""
        backlog, spool = self._owner.backlog, self._owner.spool
        line: LeaseFields = {"by": wanted.by, "seconds": wanted.seconds}
        key = backlog.exclusion_key(msg_id)
        if key is not None:
            line["key"] = key
        riders = backlog.riders_for(msg_id)
        if riders:
            line["riders"] = riders
        if spool.entry(msg_id).attempt:
            line["base"] = spool.log_size(msg_id)
            line.update(_given_back(spool, msg_id))
        return line

    def _lease(self, message: Message, wanted: Wanted, wait_us: int) -> Lease:
        leases = self._owner.leases
        now = leases.now()
        return Lease(
            msg_id=message.msg_id,
            held=self._owner.spool.leases[message.msg_id],
            seconds=wanted.seconds,
            until=now + wanted.seconds,
            heard=now,
            noted=now,
            wait_us=wait_us,
            message=None,
        )


def _given_back(spool: Spool, msg_id: str) -> LeaseFields:
    """Return how often in a row a message was given back, as its last end tells."""
    last = spool.status(msg_id).get("lease", {})
    line: LeaseFields = {}
    if "untaken" in last:
        line["untaken"] = last["untaken"]
    if "released" in last:
        line["released"] = last["released"]
    return line


def restore(owner: Owner) -> None:
    """Take in the leases that the spool has found at the start of the queue."""
    leases, spool = owner.leases, owner.spool
    now, clock = leases.now(), spool.clock()
    for msg_id, held in spool.leases.items():
        owner.backlog.ride_again(msg_id, held.riders)
        owner.backlog.take_key(held.key, msg_id)
        leases.add(
            Lease(
                msg_id=msg_id,
                held=held,
                seconds=held.seconds,
                until=now + held.left,
                ends=_ends(held, now, clock),
                heard=now,
                noted=now - held.seconds,  # its next renewal is written down
                restored=True,
                wait_us=None,
                message=None,
            )
        )


def _ends(held: Held, now: float, clock: float) -> float | None:
    """Return when an attempt is over that has begun before this start, `now` by the clock
    of leases and `clock` in epoch seconds."""
    if held.lasts is None:
        return None
    return now + min(held.lasts, max(0.0, held.since + held.lasts - clock))
