"""Ends leases: by a word of their holders, or because their holders are silent. The time
in which no holder could be heard is left out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from rq import names
from rq.config import secrets
from rq.config.checks import EXIT
from rq.errors import BadMessage, Busy, NoSuchMessage, TooLarge, Unread
from rq.logs import fields
from rq.message import limits
from rq.message.causes import Cause
from rq.message.fields import Attachment
from rq.message.message import Message
from rq.proc.slices import SLICE, Slice
from rq.queues.attempts import outcome
from rq.queues.attempts.lease import Lease, message_of
from rq.queues.attempts.outcome import WELL, Outcome
from rq.queues.delivery import copies, owed
from rq.queues.leases import said
from rq.queues.leases.output import Output
from rq.queues.leases.results import Results
from rq.queues.leases.said import Finish
from rq.queues.owner.owner import Owner
from rq.queues.runner import end
from rq.queues.runner.end import End
from rq.spool import lost_attempts
from rq.spool.record import Facts, LeaseFields, OutEntry
from rq.words.states import Event, State
from rq.words.wording import duration

UNTAKEN, RELEASED = 5, 10  # times in a row that a message is given back uncounted
MOST_COPIED = 4 * 1024 * 1024  # bytes of the copies that one end owes
BEAT = 0.5  # seconds between looks
STALL = 1.0  # seconds that the loop may stand still before they are left out
_AT_ONCE = 50

log = logging.getLogger(__name__)


class _GivenBack(NamedTuple):
    """How often in a row a message was given back, uncounted, with this time."""

    untaken: int
    released: int


class Ends:
    """Ends the leases of one queue."""

    def __init__(self, owner: Owner, output: Output, results: Results) -> None:
        self._owner = owner
        self._output = output
        self._results = results

    # ---- by a word

    def finish(
        self, lease: Lease, finish: Finish, files: Mapping[str, Attachment]
    ) -> State:
        """End a lease as its holder says; return where the message is now. `files` were
        handed in, and become attachments if it has ended well.

        NoSuchQueue, Down or Closed when a copy that it owes would not be taken, TooLarge
        when there are more of them than a line of the journal shall hold.
        """
        message = self._message(lease, finish.digest)
        if message is None:
            return self._where(lease)
        _check_size(message, finish)
        result = finish.said.result
        owes = [self._copy(message, dup, result) for dup in finish.dups]
        decided = self._decide(lease, finish, message)
        facts = _facts(lease, decided)
        if finish.run_us is not None:
            facts["run_us"] = finish.run_us
        if finish.said.result is not None:
            facts["result"] = finish.said.result
        facts["exit"], facts["signal"] = finish.exit, finish.signal
        facts["cpu_us"], facts["max_rss"] = finish.cpu_us, finish.max_rss
        self._fire(
            lease,
            End(
                message=message,
                decided=decided,
                facts=facts,
                key=lease.held.key,
                owes=owes,
                results=files,
                more={"lease": _of_lease(lease, finish.digest)},
            ),
        )
        return self._where(lease)

    def _fire(self, lease: Lease, ended: End) -> None:
        how = str(ended.decided.cause)
        if ended.facts["exit"] is not None or ended.facts["signal"] is not None:
            how = ended.facts["signal"] or f"exit {ended.facts['exit']}"
        wanted = ended.decided.event not in WELL and lease.started
        part = self._output.end(lease, how, ended.facts["run_us"] / 1e6, wanted)
        if part is not None:
            ended.facts["log"] = part
        self._owner.leases.forget(lease)
        end.fire(self._owner, ended)
        if ended.decided.event not in WELL:
            self._results.drop(lease)

    def _decide(self, lease: Lease, finish: Finish, message: Message) -> Outcome:
        finish.said.by = lease.said_by
        # Who tells of no script has none, or one that was well.
        no_script = finish.exit is None and finish.signal is None
        decided = outcome.decide(
            finish.said,
            0 if no_script else finish.exit,
            finish.signal,
            message.count,
            message.max_count,
        )
        if self._owner.config.success == EXIT and finish.said.word is None:
            text = finish.said.text
            decided = outcome.by_exit(decided, text, lambda: finish.printed)
        how = (0 if no_script else finish.exit, finish.signal)
        rule = self._owner.config.retry
        decided = outcome.by_rule(decided, rule, finish.said.word, how, message)
        return owed.check_target(self._owner.settings, decided)

    def _copy(self, message: Message, dup: said.Dup, result: str | None) -> OutEntry:
        owner = self._owner
        copies.check_sender(owner.settings, dup.dest)
        copies.target(owner.root, dup.dest)
        due = owner.spool.clock() + dup.delay
        return copies.owed_copy(message, dup.dest, due, result)

    def release(self, lease: Lease, why: str) -> State:
        """Give a message back that its holder does not want; uncounted, some times."""
        text = f"{lease.by} gave it back" + (f": {why}" if why else "")
        again = _GivenBack(0, lease.held.released + 1)
        self._give_back(lease, Cause.RELEASED, again, text, said.RELEASE)
        return self._where(lease)

    def not_taken(self, lease: Lease, text: str) -> None:
        """Give a message back whose lease was never taken up; uncounted, some times."""
        again = _GivenBack(lease.held.untaken + 1, lease.held.released)
        self._give_back(lease, Cause.NOT_TAKEN, again, text, "")

    def _give_back(
        self, lease: Lease, cause: Cause, again: _GivenBack, text: str, word: str
    ) -> None:
        self._check_free(lease)
        if lease.cancelled is not None:
            self._cancelled(lease, word)
        elif again.untaken > UNTAKEN or again.released > RELEASED:
            self._lose(lease, cause, text, word)
        else:
            line = _of_lease(lease, word)
            if again.untaken:
                line["untaken"] = again.untaken
            if again.released:
                line["released"] = again.released
            self._end(lease, Outcome(Event.REQUEUE, cause, text), line)

    # ---- because the holder is silent

    def run_out(self, lease: Lease) -> None:
        """End a lease that is over."""
        if not lease.started:
            text = f"{lease.by} did not confirm its lease"
            self.not_taken(lease, text)
        elif lease.cancelled is not None:
            self._cancelled(lease, "")
        elif lease.ends is not None and self._owner.leases.now() >= lease.ends:
            self._over(lease)
        else:
            away = duration(self._owner.leases.now() - lease.heard)
            text = f"its worker {lease.by} was last heard of {away} ago"
            self._lose(lease, Cause.LEASE_ENDED, text, "")

    def _over(self, lease: Lease) -> None:
        """End a lease at its time-out, whatever its holder has renewed."""
        message = self._message(lease, "")
        if message is None:
            return
        ran = max(0.0, time.time() - lease.held.since)
        why = f"over its timeout, and its worker {lease.by} has not said so"
        decided = Outcome(Event.FAIL, Cause.TIMEOUT, limits.killed(ran, why))
        rule = self._owner.config.retry
        decided = outcome.by_rule(decided, rule, None, (None, None), message)
        self._close(lease, message, decided, _of_lease(lease, ""))

    def _lose(self, lease: Lease, cause: Cause, text: str, word: str) -> None:
        """Take the message back, counted; into err past its limit."""
        owner, msg_id = self._owner, lease.msg_id
        took = time.time() - lease.held.since
        part = self._output.end(lease, str(cause), took, wanted=False)
        lost = lost_attempts.Lost(
            cause, text, _of_lease(lease, word), part, lease.held.since
        )
        lost_attempts.recover(owner.spool, msg_id, False, lost)
        self._owner.leases.forget(lease)
        self._results.drop(lease)
        owner.backlog.free_key(lease.held.key, msg_id)
        owner.backlog.release_riders(msg_id)
        if owner.spool.find(msg_id) is State.QUE:
            owner.backlog.put(msg_id)
        else:
            owner.count("err")
        owner.wake()

    # ---- what all of them do

    def _cancelled(self, lease: Lease, word: str) -> None:
        line = _of_lease(lease, word)
        self._end(lease, outcome.cancelled(lease.said_by or ""), line)

    def _end(self, lease: Lease, decided: Outcome, line: LeaseFields) -> None:
        message = self._message(lease, line.get("word", ""))
        if message is not None:
            self._close(lease, message, decided, line)

    def _close(
        self, lease: Lease, message: Message, decided: Outcome, line: LeaseFields
    ) -> None:
        self._fire(
            lease,
            End(
                message=message,
                decided=decided,
                facts=_facts(lease, decided),
                key=lease.held.key,
                more={"lease": line},
            ),
        )
        text = secrets.host_only(decided.text)
        log.info(
            "%s: %s",
            decided.event,
            fields(msg_id=lease.msg_id, cause=decided.cause, text=text),
        )

    def _message(self, lease: Lease, word: str) -> Message | None:
        """Return a leased message as it stands; None: its file cannot be used, and it is
        in err by now, by the word of its holder. Unread: that is not known for now. Busy:
        a file is handed in."""
        self._check_free(lease)
        spool, msg_id = self._owner.spool, lease.msg_id
        try:
            return message_of(spool, lease)
        except Unread:
            raise
        except (BadMessage, NoSuchMessage) as error:
            self._owner.leases.forget(lease)
            self._owner.backlog.free_key(lease.held.key, msg_id)
            self._owner.backlog.release_riders(msg_id)
            line = _of_lease(lease, word)
            lost_attempts.fail_malformed(spool, msg_id, str(error), line)
            return None

    def _check_free(self, lease: Lease) -> None:
        if self._owner.spool.entry(lease.msg_id).busy:
            raise Busy(
                f"message {lease.msg_id} is being worked on: a file is handed in; ask again"
            )

    def _where(self, lease: Lease) -> State:
        return self._owner.spool.find(lease.msg_id) or State.GONE


def _check_size(message: Message, finish: Finish) -> None:
    """TooLarge when the copies of a message are too much for one end: all of them are in
    its line, in memory and in each checkpoint until they are delivered."""
    if not finish.dups:
        return
    size = len(finish.dups) * len(message.encode())
    if size > MOST_COPIED:
        raise TooLarge(
            f"its {len(finish.dups)} copies have {size} bytes, at most {MOST_COPIED} can "
            "be owed with one end; send large data as an attachment"
        )


def _of_lease(lease: Lease, word: str) -> LeaseFields:
    line: LeaseFields = {
        "hash": lease.held.token,
        "by": lease.by,
        "seconds": lease.held.seconds,
    }
    if word:
        line["word"] = word
    return line


def _facts(lease: Lease, decided: Outcome) -> Facts:
    tries: Facts = {} if decided.tries is None else {"tries": decided.tries}
    return {
        **tries,
        "cause": decided.cause,
        "outcome": decided.name,
        "text": decided.text,
        "exit": None,
        "signal": None,
        "wait_us": lease.wait_us,
        "run_us": max(0, int((time.time() - lease.held.since) * 1e6)),
        "cpu_us": None,
        "max_rss": None,
        "created_us": int(names.created(lease.msg_id) * 1e6),
    }


# ---- the look at those that are over


class Expiry:
    """Looks at the leases of one queue, as long as some are out.

    A look is a timer of the loop, which reads its sockets before its timers: a word that
    has come is heard before the lease can be over.
    """

    def __init__(self, owner: Owner, ends: Ends) -> None:
        self._owner = owner
        self._ends = ends
        self._timer: asyncio.TimerHandle | None = None
        self._looked = 0.0
        self._goes_on = False  # some are over, and wait for their ends

    def mind(self) -> None:
        """Look from now on, if there is something to look at."""
        if self._timer is None and len(self._owner.leases):
            self._looked = time.monotonic()
            self._set()

    def _set(self) -> None:
        self._timer = self._owner.loop.call_later(BEAT, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        if self._deaf:
            self._owner.leases.leave_out(passed)
        else:
            if passed - BEAT > STALL:
                self._owner.leases.leave_out(passed)
            if not self._goes_on:
                self._end_some()
        if len(self._owner.leases):
            self._set()

    @property
    def _deaf(self) -> bool:
        """Whether no word could be answered since the last look."""
        admission = self._owner.admission
        failed = admission.disk_failed or self._owner.spool.journal_failed
        return bool(failed or admission.restored)

    def _end_some(self) -> None:
        """End what is over, for a slice, and the rest behind what else is to be done."""
        self._goes_on = False
        turn = Slice()
        spool = self._owner.spool
        while not (turn.is_over or spool.group_full):
            over = self._owner.leases.over(_AT_ONCE)
            for lease in over:
                if not spool.entry(lease.msg_id).busy:
                    self._end(lease.msg_id)
            if len(over) < _AT_ONCE:
                return
        self._goes_on = True
        self._owner.loop.call_later(SLICE, self._end_some)
        self._owner.wake()

    def _end(self, msg_id: str) -> None:
        lease = self._owner.leases.of(msg_id)
        if lease is None:
            return
        try:
            self._ends.run_out(lease)
        except Exception:  # the others end all the same
            log.exception("a lease that is over could not be ended: %s", msg_id)
