"""The desk of leases: asked for, renewed, given back, ended; joins the other modules."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from rq.config.checks import PULL
from rq.errors import RQError
from rq.message import limits
from rq.message.fields import Attachment
from rq.queues.attempts.lease import Lease, digest, message_of
from rq.queues.leases import grants, past, said
from rq.queues.leases.ends import Ends, Expiry
from rq.queues.leases.grants import Granted, Grants, Wanted
from rq.queues.leases.output import Output, Progress
from rq.queues.leases.repeated import Repeated
from rq.queues.leases.results import Results
from rq.queues.leases.waiters import Waiter, Waiters
from rq.queues.owner.owner import Owner
from rq.spool import Held
from rq.words.states import State

LOOKING = 10.0  # seconds that who does not wait may have to until all was looked at
SLICE = 0.02  # seconds of the processor that claims take in one go
LOOKS = 16  # claims between two looks at the clock
MOST_BYTES = 4 * 1024 * 1024  # of messages in one answer; one more may make it longer

log = logging.getLogger(__name__)


class Desk:
    """The leases of one queue."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._leases = owner.leases
        self.grants = Grants(owner)
        self._output = Output(owner.spool, self._most_of_log)
        self._progress = Progress(owner.spool, owner.loop, owner.leases)
        self.results = Results(owner.spool, owner.loop, owner.pools.files)
        self._ends = Ends(owner, self._output, self.results)
        self._expiry = Expiry(owner, self._ends)
        read = functools.partial(message_of, owner.spool)
        self._repeated = Repeated(owner.leases, read)
        self._waiters = Waiters(owner.loop, self._claim)
        # Renewals that the journal is still to be told of, by their seconds.
        self._renewed: dict[float, list[Held]] = {}
        grants.restore(owner)
        self._expiry.mind()

    def _most_of_log(self, lease: Lease) -> int | None:
        """Return how many bytes are kept of what an attempt prints; None: all."""
        if lease.own_limits is None:  # it has outlived its queue's process
            with contextlib.suppress(RQError):  # its file cannot be used for now
                lease.own_limits = message_of(self._owner.spool, lease).limits
        own = lease.own_limits or {}
        return limits.of(self._owner.settings.limits, own).log_bytes

    # ---- handing out

    def take(self, wanted: Wanted, request: str) -> list[Granted]:
        """Lease what is due to a holder, at most what he wants; `request`: what he has
        got for the same one before, if that is not confirmed."""
        granted = self._repeated.of(wanted.by, request)
        if granted:
            return granted
        self.serve()
        if not self._waiters.hungry:
            granted = self._claim(wanted)
            self.remember(wanted.by, request, granted)
        return granted

    def remember(self, by: str, request: str, granted: list[Granted]) -> None:
        """Keep what was handed out for a request that may be asked again."""
        self._repeated.keep(by, request, granted)

    async def wait(self, waiter: Waiter, seconds: float) -> None:
        """Wait for something to lease, for news of leases that he holds, or so long; 0:
        until all that is due was looked at."""
        waiter.impatient = not seconds
        self._owner.wake()  # a turn knows when the next message is due
        await self._waiters.wait(waiter, seconds or LOOKING)

    def serve(self) -> float | None:
        """Lease what is due to those who wait; return when to look again."""
        if not self._waiters.hungry:
            return None
        if self._owner.config.pull is None:
            self._waiters.end()
            return None
        if self._waiters.serve():
            return self._owner.spool.clock()
        if not self.grants.looks_on:
            self._waiters.end_impatient()
        return self.grants.later

    def _claim(self, wanted: Wanted) -> list[Granted]:
        until, size = time.thread_time() + SLICE, 0
        granted = []
        for grant in self.grants.claim(wanted):
            granted.append(grant)
            size += grant.lease.size
            if size > MOST_BYTES:
                break
            # Not each time: to ask for this clock takes as long as a claim.
            if len(granted) % LOOKS == 0 and time.thread_time() > until:
                break
        if granted:
            self._expiry.mind()
            self._owner.wake()
        return granted

    def give_back(self, granted: Sequence[Granted]) -> None:
        """Take leases back whose holder has hung up before he could be told."""
        for grant in granted:
            lease = self._leases.held(grant.lease.held.token)
            if lease is not None:
                self._unheard(lease)

    def unheard(self, token: str) -> State:
        """As `give_back`, of a lease whose holder was to be told by another process;
        return where its message is now."""
        # Not by `held`, which hears of the holder: then it would have begun.
        lease = self._leases.held(digest(token))
        if lease is None:
            lease = self.held(token)  # raises why it is over
        self._unheard(lease)
        return self._owner.spool.state_of(lease.msg_id)

    def _unheard(self, lease: Lease) -> None:
        if lease.started:
            return
        lease.answers -= 1
        if lease.answers:
            return  # another answer to the same request tells of it
        text = f"{lease.by} hung up before it was told of its lease"
        try:
            self._ends.not_taken(lease, text)
        except (OSError, RQError) as error:  # it runs out soon
            log.warning("a lease cannot be given back for now: %s", error)

    def end_waiting(self) -> None:
        """Answer all that wait: the queue stops."""
        self._waiters.end()

    # ---- words of holders

    def held(self, token: str) -> Lease:
        """Return the lease of a token whose holder is heard of now; LeaseOver if it is
        over, and what became of its message."""
        lease = self._leases.held(digest(token))
        if lease is None:
            raise past.failure(self._owner.spool, token)
        self._leases.hear(lease)
        return lease

    def renew(self, lease: Lease, seconds: float | None) -> float:
        """Renew a lease, for `seconds`, or as many as it was granted last; return
        how many."""
        self._leases.hear(lease, seconds or lease.seconds)
        held, now = lease.held, self._leases.now()
        if lease.seconds > held.seconds or now - lease.noted >= lease.seconds / 2:
            self._renewed.setdefault(lease.seconds, []).append(held)
            lease.noted = now
        return lease.seconds

    def write_down(self) -> None:
        """Tell the journal which leases were confirmed, and the renewals that it has to
        know. In each turn, before it is committed: answers leave behind that."""
        notes = self._owner.spool.lease_notes
        notes.start(self._leases.begun())
        renewed, self._renewed = self._renewed, {}
        for seconds, held in renewed.items():
            notes.renew(held, seconds)

    def progress(self, lease: Lease, text: str, fraction: float | None) -> None:
        """Show how far its holder is."""
        self._progress.show(lease, text, fraction)

    def write_log(self, lease: Lease, offset: int, data: bytes, gap: bool) -> int:
        """Append what an attempt has printed; return how many bytes there are now."""
        return self._output.write(lease, offset, data, gap)

    async def hand_in(self, lease: Lease, name: str, source: int) -> Attachment:
        """Take a file that an attempt hands in; its lease goes on meanwhile."""
        pull = self._owner.config.pull or PULL  # it may have been taken away since
        taken = await self.results.take(lease, name, source, pull)
        if self._leases.held(lease.held.token) is lease:
            self.renew(lease, None)
        return taken

    async def verified(
        self, token: str, finish: said.Finish
    ) -> Mapping[str, Attachment]:
        """Return the files that an attempt ends with, which are durable; nothing of one
        that has ended before."""
        lease = self._leases.held(digest(token))
        if lease is None or not finish.files:
            return {}
        return await self.results.verified(lease, finish.files)

    def finish(
        self, token: str, finish: said.Finish, files: Mapping[str, Attachment]
    ) -> State:
        """End an attempt as its holder says, once; return where its message is now.
        `files` are what `verified` has returned."""
        return self._once(
            token, finish.digest, lambda lease: self._ends.finish(lease, finish, files)
        )

    def release(self, token: str, why: str) -> State:
        """Give a message back that its holder does not want; return where it is now."""
        return self._once(
            token, said.RELEASE, lambda lease: self._ends.release(lease, why)
        )

    def _once(self, token: str, word: str, act: Callable[[Lease], State]) -> State:
        state = None
        if self._leases.held(digest(token)) is None:
            state = past.ended_by(self._owner.spool, token, word)
        return act(self.held(token)) if state is None else state

    # ---- a person's word

    def cancel(self, msg_id: str, who: str) -> bool:
        """Ask the holder of a message to end it, also after a crash; False if it is not
        held."""
        lease = self._leases.of(msg_id)
        if lease is None:
            return False
        if lease.cancelled is None:
            self._owner.spool.lease_notes.cancel(lease.held, who)
            self._leases.note_cancelled(lease)
        self._waiters.call(lease.by)
        return True

    def cancelled(self, by: str) -> dict[str, str]:
        """Return, for each message that a holder should end, why; once."""
        news = {}
        for lease in self._leases.cancelled():
            if lease.by == by and not lease.announced and lease.cancelled is not None:
                lease.announced = True
                news[lease.msg_id] = lease.cancelled
        return news

    # ---- a stop

    def save_left(self) -> None:
        """Tell the spool how long each lease goes on, for the next start."""
        now = self._leases.now()
        for lease in self._leases:
            lease.held.left = max(0.0, lease.until - now)


def new_waiter(wanted: Wanted) -> Waiter:
    """Return a client that waits, on the loop that runs."""
    return Waiter(wanted, asyncio.get_running_loop().create_future())
