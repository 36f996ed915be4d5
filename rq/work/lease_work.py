"""The work on a lease, from the moment it was given until its end is handed in."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rq.errors import NoRoom, NotKnown, NotPermitted, Refused, RQError
from rq.layout import AFTER_FILE
from rq.logs import fields
from rq.message.after import only_result
from rq.proc.spawn import Termination
from rq.scripts.pipe import Verb
from rq.work import folder as folders
from rq.work import holding
from rq.work.attempt import Attempt, Why
from rq.work.definition import Definition
from rq.work.delivery import Delivery
from rq.work.folder import Sweeper
from rq.work.load import Load
from rq.work.words import Bulk

HOLD = 2.0  # seconds without leases after a script could not be started
_WHY = 200  # characters of a reason that travel
_ENDED = {
    Why.STOP: "its worker stops",
    Why.LINK: "its worker could not reach the queue",
    None: "its worker ended before it had read the message",
}

log = logging.getLogger(__name__)


class Runner(Protocol):
    """What runs scripts: a process for each message, or long-lived workers."""

    async def run(self, attempt: Attempt, values: Mapping[str, str]) -> None:
        """Return when the script is done with a message; OSError: it cannot start."""

    def retire(self) -> None:
        """Let what stays without a message end."""

    @property
    def empty(self) -> bool:
        """Whether nothing stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWork:
    """What works on leases."""

    delivery: Delivery
    definition: Definition
    runner: Runner
    slots: asyncio.Semaphore
    load: Load
    sweeper: Sweeper

    async def work(self, attempt: Attempt) -> None:
        """Work on a message, and see to it that its queue knows how that ended."""
        given_back = ""
        try:
            if await self._begin(attempt):
                async with self.slots:
                    began = time.monotonic()
                    await self._run(attempt)
                    self.load.keep_slot(time.monotonic() - began)
        except OSError as error:
            given_back = self._not_started(attempt, error)
        except NoRoom as error:
            self._hold()
            given_back = str(error)
        except RQError as error:
            given_back = str(error)
        finally:
            attempt.exited.set()
            self.load.end()
        try:
            await self._end(attempt, given_back)
        except (NotKnown, NotPermitted) as error:
            self._keep(attempt, error)
            return
        except RQError as error:
            log.error(
                "nobody takes the end of a message: %s",
                fields(msg_id=attempt.msg_id, reason=error),
            )
        # One that could not be handed in until the agent ended stays, with its note.
        if attempt.is_laid_out:
            self.sweeper.remove(attempt.folder)

    def _keep(self, attempt: Attempt, refusal: RQError) -> None:
        """Keep an end for an agent that its host lets in."""
        log.error(
            "its host lets this agent in no more; the end of a message is kept for the "
            "next start: %s",
            fields(msg_id=attempt.msg_id, reason=refusal),
        )
        if attempt.closed_at is not None and not attempt.is_kept:
            self.delivery.keep(attempt)

    async def _begin(self, attempt: Attempt) -> bool:
        """Say that the work begins, and lay out its folder; return whether it does."""
        starting = _say(attempt, self.delivery.words.starts)
        if holding.now() < attempt.term.renew_at:
            await starting
        else:
            await asyncio.gather(starting, self._renew_late(attempt))
        if attempt.why is not None:
            return False
        try:
            if self.definition.wants_folder or attempt.lease.brings_files:
                attempt.lay_out()
            return not attempt.lease.files or await self._fetch(attempt)
        except OSError as error:
            raise self._no_room(error) from None

    async def _fetch(self, attempt: Attempt) -> bool:
        """Fetch its attachments; return whether they are here before it is to end."""
        service = self.delivery.service
        fetching = asyncio.create_task(
            folders.fetch(attempt.folder, attempt.lease, service)
        )
        stopped = asyncio.create_task(attempt.stopped.wait())
        try:
            await asyncio.wait({fetching, stopped}, return_when=FIRST_COMPLETED)
            if fetching.done():
                fetching.result()
            return fetching.done()
        finally:
            stopped.cancel()
            fetching.cancel()
            await asyncio.wait({fetching})

    def _no_room(self, error: OSError) -> RQError:
        """Return why a message cannot be laid out here; nothing is leased for a while."""
        self._hold()
        why = f"its worker cannot lay it out: {error.strerror or error}"
        log.error("%s: %s", why, fields(file=error.filename))
        return Refused(why)

    def _hold(self) -> None:
        self.load.hold(asyncio.get_running_loop().time() + HOLD)

    async def _renew_late(self, attempt: Attempt) -> None:
        """Renew a lease of which much is over: it was waited for long, or has waited for
        a slot."""
        if holding.now() >= attempt.term.renew_at:
            await _say(attempt, self.delivery.words.renewals)

    async def _run(self, attempt: Attempt) -> None:
        await self._renew_late(attempt)
        if attempt.why is not None:
            return
        place = f"{attempt.folder.place.messages}/{attempt.folder.job}"
        directory = place if attempt.is_laid_out else None
        message = attempt.lease.message
        of_message = self.definition.values(message, directory)
        values = {**_of_others(attempt), **of_message}
        await self.runner.run(attempt, values)

    def _not_started(self, attempt: Attempt, error: OSError) -> str:
        """Return why a message is given back; one that no environment can hold fails."""
        if error.errno == errno.E2BIG:
            attempt.said.word = Verb.ERR
            attempt.said.text = "parameters too large for an environment"
            attempt.finish(Termination(0, None, None, None))
            return ""
        self._hold()
        why = f"its worker cannot start the script: {error.strerror or error}"
        log.error("%s: %s", why, fields(file=error.filename))
        return why

    async def _end(self, attempt: Attempt, given_back: str) -> None:
        if attempt.why is Why.LOST:
            log.warning("a lease is over: %s", fields(msg_id=attempt.msg_id))
        elif given_back or attempt.is_given_back:
            why = given_back or _ENDED.get(attempt.why, "")
            await self.delivery.words.releases.ask((attempt.token, why[:_WHY]))
        else:
            await self.delivery.hand_in(attempt)


def _of_others(attempt: Attempt) -> Mapping[str, str]:
    """Return what its script is told of the messages that its own has waited for, as one
    on the queue's host."""
    rows = attempt.lease.after
    if not rows:
        return {}
    values = {"RQ_AFTER": f"{attempt.folder.path}/{AFTER_FILE}"}
    result = only_result(rows)
    if isinstance(result, str) and "\0" not in result:
        values["RQ_PARENT_RESULT"] = result  # an environment holds no NUL
    return values


async def _say(attempt: Attempt, bulk: Bulk[str]) -> None:
    attempt.take(await bulk.ask(attempt.token))
