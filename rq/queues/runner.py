"""Claims what is due, starts workers, hears them, and ends their attempts.

Order that must not change: the claim is durable before the script starts; all of its
children have ended before its final event; the final event is durable before its folder
moves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rq import names, pipe, proc, retry
from rq.causes import Cause
from rq.config import PERSISTENT
from rq.errors import BadInput, BadMessage, NoSuchMessage, RQError
from rq.logs import fields
from rq.message import Message
from rq.pipe import Report, Verb
from rq.queues import delivery, environment, handover, outcome, persistent
from rq.queues.outcome import Outcome
from rq.queues.owner import Owner
from rq.queues.pool import Pool
from rq.queues.resident import Resident
from rq.queues.script import KILL, TERM, Plan, Script, find_program
from rq.queues.slots import Slot, Slots
from rq.queues.stdio import PassedLog, StdioLog
from rq.queues.worker import Worker
from rq.spool import leases, lost
from rq.states import Event, Role, State

PROGRESS_SECONDS = 0.2  # at most that often the file `status` of a running message
LOOK_SECONDS = 1.0  # how long a look at the script holds for long-lived workers
SCRIPT_SECONDS = 2.0  # how often a script that cannot be started is looked at again
_MISSING = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR,
                      errno.ELOOP, errno.EPERM, errno.EISDIR})  # fmt: skip

# What an earlier attempt can have made of a folder: no reason to try it again.
_RUINED = _MISSING | {errno.EEXIST, errno.EINVAL, errno.ENXIO, errno.ENAMETOOLONG}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Claim:
    message: Message
    slot: Slot
    resident: Resident | None  # reserved; None: a script is started
    key: str | None  # exclusion key
    wait_us: int
    seq: int  # of the event that brought the message into que
    stamp: tuple[int, int] | None = None  # of its file `msg` at the start


class Runner:
    """The workers of one queue."""

    def __init__(self, owner: Owner, null: int) -> None:
        self.owner = owner
        self._null = null
        self._claims: list[_Claim] = []
        self._running: dict[str, _Claim] = {}
        self._slots = Slots(
            owner.queue.path / "lease",
            owner.opened.lease_prefix,
            owner.spool.journal.start,
        )
        self.pool = Pool(owner, self._slots, null, self._ready, self._left)
        self._hold_until = 0.0
        self._failures = 0
        self._retry_script = 0.0
        self._look_at = 0.0  # when the script of long-lived workers is looked at again
        self._script = ""  # real path, found at each claim
        self._unfit = False  # the script's file cannot be started, as it looks
        self._chatty: set[Worker] = set()
        self._chat_timer: asyncio.TimerHandle | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._ghosts = list(owner.opened.ghosts)

    # ---- claiming

    def claim_due(self) -> float | None:
        """Claim all that is due and has a slot; return when to look again."""
        owner = self.owner
        now = owner.spool.clock()
        while owner.may_start and owner.slots_free > 0:
            if now < self._hold_until or not self._script_ready(now):
                return max(self._hold_until, self._retry_script)
            if self._persistent and not self.pool.free:
                return self._want_worker(now)
            msg_id, later = owner.waiting.next_due(
                now, owner.exclusion_key, owner.busy_keys
            )
            if msg_id is None:
                if later is None:
                    self._script_is_back()  # nobody waits for it: nothing is known
                return later
            if owner.spool.entries[msg_id].busy:
                continue
            self._claim(msg_id, now)
            if owner.spool.journal.full:
                return now
        return None

    def _claim(self, msg_id: str, now: float) -> None:
        owner = self.owner
        key = owner.exclusion_key(msg_id)
        entry = owner.spool.entries[msg_id]
        group = entry.key
        seq = entry.seq
        wait_us = int(max(0.0, now - max(entry.due, entry.since)) * 1e6)
        resident = self.pool.take() if self._persistent else None
        slot = resident.slot if resident else self._slots.take()
        owner.leaves(msg_id)
        try:
            message = owner.spool.claim(msg_id, slot.number)
        except (BadMessage, NoSuchMessage) as error:
            self._release(slot, resident)
            lost.fail_malformed(owner.spool, msg_id, str(error))
            return
        owner.gather_riders(msg_id, group)
        owner.claimed.add(msg_id)
        if key is not None:
            owner.busy_keys[key] = msg_id
        self._claims.append(_Claim(message, slot, resident, key, wait_us, seq))

    def _release(self, slot: Slot, resident: Resident | None) -> None:
        """Take back what was reserved for an attempt that did not begin."""
        if resident is not None:
            self.pool.release(resident)
        else:
            os.close(slot.fd)
            self._slots.free(slot.number)

    @property
    def _persistent(self) -> bool:
        return self.owner.config.worker == PERSISTENT

    def _want_worker(self, now: float) -> float | None:
        """See to it that there will be a worker for what is due; return when to look
        again."""
        first = self.owner.waiting.first_due()
        if first is None:
            self._script_is_back()  # nobody waits for it: nothing is known
        if first is None or first > now:
            return first
        try:
            return self.pool.grow(self._script, now)
        except OSError as error:
            text = f"{self.owner.config.script}: {error.strerror or error}"
            log.warning("a worker could not be started: %s", fields(reason=text))
            if error.errno in _MISSING:
                self._script_error(text, now)
            return now + SCRIPT_SECONDS

    def waits_for_sync(self, seq: int) -> bool:
        """Whether a message is claimed whose acceptance is a later event than `seq`."""
        return any(one.seq > seq for one in self._claims)

    @property
    def flows(self) -> bool:
        """Whether scripts are at work, so that another end most likely comes soon."""
        return self.pool.busy or bool(self.owner.workers)

    # ---- starting

    def launch(self, seq: int) -> None:
        """Start what was claimed and accepted no later than event `seq`.

        Its claim is written, so a kill -9 does not forget the attempt; the sync of the
        claim need not be waited for, that of its acceptance is.
        """
        claims = [one for one in self._claims if one.seq <= seq]
        if not claims:
            return
        self._claims = [one for one in self._claims if one.seq > seq]
        for claim in claims:
            msg_id = claim.message.msg_id
            self.owner.claimed.discard(msg_id)
            try:
                self._start(claim)
            except OSError as error:
                self._not_started(claim, error)

    def _start(self, claim: _Claim) -> None:
        if claim.resident is not None:
            worker = self._hand(claim, claim.resident)
        else:
            worker = self._spawn(claim)
            self._failures = 0
            self._script_is_back()
        msg_id = claim.message.msg_id
        self.owner.workers[msg_id] = worker
        self._running[msg_id] = claim

    def _spawn(self, claim: _Claim) -> Worker:
        """Start a script for a message."""
        owner, message, slot = self.owner, claim.message, claim.slot
        directory = self._directory(message.msg_id)
        claim.stamp = owner.spool.stamp(message.msg_id)
        script = self._script
        base = environment.for_script(owner.base_env, script, slot.lease)
        env = {**base, **self._values(message, directory)}
        argv = find_program([*owner.argv_prefix, script], env.get("PATH", ""))
        log = StdioLog(directory, script)
        worker = Worker(message, slot, log, self._hear)
        try:
            worker.script = Script(
                Plan(
                    argv=argv,
                    env=env,
                    directory=directory,
                    output=log.fd,
                    lease=slot.fd,
                    nice=owner.config.nice,
                    null=self._null,
                ),
                owner.loop,
                worker.hear,
                functools.partial(self._script_ended, worker),
            )
            log.started(worker.pid)
        finally:
            log.close()
        os.close(slot.fd)
        return worker

    def _hand(self, claim: _Claim, resident: Resident) -> Worker:
        """Give a message to a long-lived worker."""
        message, msg_id = claim.message, claim.message.msg_id
        if resident.script.ending is not None:
            raise ChildProcessError(errno.ECHILD, "its worker has ended")
        directory = None
        if self.owner.config.worker_dir or message.attachments:
            directory = self._directory(msg_id)
            claim.stamp = self.owner.spool.stamp(msg_id)
        else:
            self.owner.spool.rest(msg_id)
        log = PassedLog(
            functools.partial(self._directory, msg_id), resident.pid, self._script
        )
        worker = Worker(message, resident.slot, log, self._hear)
        line = persistent.line(self._values(message, directory))
        resident.hand(worker, log, line)
        return worker

    def _directory(self, msg_id: str) -> str:
        """Make the folder and the worker's directory of a message that runs."""
        self.owner.spool.settle(msg_id)
        return self.owner.spool.work_dir(msg_id)

    def _values(self, message: Message, directory: str | None) -> dict[str, str]:
        return environment.of_message(
            self.owner.main, self.owner.name, message, directory
        )

    def _not_started(self, claim: _Claim, error: OSError) -> None:
        message = claim.message
        in_folder = _in_folder(error, message.msg_id)
        where = error.filename if in_folder else self.owner.config.script
        text = f"{where}: {error.strerror or error}"
        log.warning(
            "a script could not be started: %s",
            fields(msg_id=message.msg_id, reason=text),
        )
        if error.errno == errno.E2BIG:
            size = sum(len(k) + len(str(v)) for k, v in message.params.items())
            limit = os.sysconf("SC_ARG_MAX")
            text = f"parameters too large for an environment ({size} of {limit} bytes)"
            self._give_back(claim, Event.FAIL, Cause.TOO_LARGE, text)
            return
        now = self.owner.spool.clock()
        if in_folder and error.errno in _RUINED:
            self._give_back(claim, Event.FAIL, Cause.BAD_MESSAGE, text)
            return
        if error.errno in _MISSING and not in_folder:
            self._script_error(text, now)
            self._give_back(claim, Event.REQUEUE, Cause.SCRIPT, text)
            return
        self._failures += 1
        self._hold_until = now + retry.delay(self._failures, 0.5, 30.0)
        self._give_back(claim, Event.REQUEUE, Cause.SPAWN, text)

    def _give_back(self, claim: _Claim, event: Event, cause: Cause, text: str) -> None:
        """End an attempt that did not begin."""
        owner, message = self.owner, claim.message
        msg_id = message.msg_id
        self._release(claim.slot, claim.resident)
        unchanged: Message | None = None
        if event is Event.REQUEUE:  # this was no attempt
            unchanged = message = message.with_(attempt=message.attempt - 1)
        facts = {"cause": cause, "text": text, "outcome": _NAMES[event]}
        more: dict[str, Any] = {}
        if event is Event.FAIL:
            more = owner.spool.owing(message, facts)
        owner.spool.fire(
            msg_id,
            event,
            Role.QUEUE,
            message=unchanged,
            facts=facts,
            spare=message,
            **more,
        )
        self._free(claim)
        owner.release_riders(msg_id)
        if event is Event.REQUEUE:
            owner.waits(msg_id, message)
        owner.wake()

    def _free(self, claim: _Claim) -> None:
        if claim.key is not None:
            self.owner.busy_keys.pop(claim.key, None)
            self.owner.waiting.release(claim.key)

    # ---- the script

    def _real_script(self) -> str:
        root = str(self.owner.root.path)
        return os.path.realpath(os.path.join(root, self.owner.config.script))

    def _script_ready(self, now: float) -> bool:
        """Return whether the script looks as if it could be started."""
        if now < self._retry_script:
            return False
        if self.pool.free and now < self._look_at:
            return True
        script = self._script = self._real_script()
        if os.path.isfile(script) and os.access(script, os.X_OK):
            self._retry_script = 0.0
            if self._unfit:
                self._script_is_back()
            self._look_at = now + LOOK_SECONDS
            self.pool.know(_identity(script))
            return True
        self._unfit = True
        why = "not executable" if os.path.exists(script) else "no such file"
        self._script_error(f"{self.owner.config.script}: {why}", now)
        return False

    def _script_error(self, text: str, now: float) -> None:
        if self.owner.oper != text:
            log.error("SCRIPTERROR: %s; messages wait in que until it is mended", text)
        self.owner.oper = text
        self._retry_script = now + SCRIPT_SECONDS

    def _script_is_back(self) -> None:
        self._unfit = False
        if self.owner.oper is not None:
            self.owner.oper = None
            log.info("the script can be started again")

    def look_at_script(self) -> None:
        """Forget the pause after a script error: something may have changed."""
        self._retry_script = self._look_at = 0.0
        self.pool.hold_no_longer()

    # ---- long-lived workers

    def _ready(self, resident: Resident) -> None:
        if resident.worker is not None:
            self._exited(resident.worker)
            return
        self._script_is_back()
        self.owner.wake()

    def _left(self, resident: Resident) -> None:
        """A long-lived worker has ended."""
        if resident.worker is not None and not resident.refused:
            self._exited(resident.worker)
            return
        if resident.worker is not None:
            self._take_back(resident.worker)
        now = self.owner.spool.clock()
        if not resident.hung_up:
            self._left_unasked(resident, now)
        forget = functools.partial(self._forget, resident)
        self._clear(resident.script, resident.slot, False, forget)

    def _take_back(self, worker: Worker) -> None:
        """Its worker has ended before it could read the message: this was no attempt."""
        claim = self._running.pop(worker.msg_id)
        del self.owner.workers[worker.msg_id]
        text = "its worker ended before it had read the message"
        if worker.said.by is not None:
            decided = self._decide(worker)
            self._give_back(claim, decided.event, decided.cause, decided.text)
        else:
            self._give_back(claim, Event.REQUEUE, Cause.SPAWN, text)

    def _left_unasked(self, resident: Resident, now: float) -> None:
        self.pool.note_failure(resident, now)
        ending = resident.script.ending
        assert ending is not None
        text = persistent.died(ending.exit, ending.signal, resident.greeted)
        log.warning("%s: %s", text, fields(pid=resident.pid))
        if not resident.greeted and not self.pool.free:
            self._script_error(f"{self.owner.config.script}: {text}", now)

    def _forget(self, resident: Resident) -> None:
        self.pool.forget(resident)
        self.owner.wake()

    # ---- hearing

    def _hear(self, worker: Worker, report: Report) -> None:
        if report.verb is Verb.DUP:
            self._dup(worker, report.text)
            return
        worker.said.hear(report)
        self._chatty.add(worker)
        if self._chat_timer is None:
            self._chat_timer = self.owner.loop.call_later(
                PROGRESS_SECONDS, self._write_progress
            )

    def _write_progress(self) -> None:
        self._chat_timer = None
        chatty, self._chatty = self._chatty, set()
        for worker in chatty:
            if self.owner.workers.get(worker.msg_id) is worker:
                with contextlib.suppress(OSError):
                    self.owner.spool.settle(worker.msg_id)
                self.owner.spool.write_progress(worker.msg_id, worker.said.text)

    def _dup(self, worker: Worker, text: str) -> None:
        try:
            asked = pipe.parse_dup(text)
        except BadInput as error:
            worker.script.tell(pipe.dup_reply(False, f"dup failed - {error}"))
            return
        worker.dups += 1
        self._spawn_task(self._answer_dup(worker, asked))

    async def _answer_dup(self, worker: Worker, asked: pipe.Dup) -> None:
        try:
            self.owner.spool.settle(worker.msg_id)  # others read its folder
            full_id = await handover.dup(self.owner, worker.message, asked)
            worker.script.tell(pipe.dup_reply(True, full_id))
        except (RQError, OSError) as error:
            worker.script.tell(pipe.dup_reply(False, str(error)))
        finally:
            worker.dups -= 1
            if worker.ending is not None and not worker.dups:
                self._exited(worker)

    def _spawn_task(self, work: Any) -> None:
        task = self.owner.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())

    # ---- ending

    def _script_ended(self, worker: Worker) -> None:
        """The script has ended and its pipe is read to the end."""
        assert worker.script.ending is not None
        worker.end(worker.script.ending)
        self._exited(worker)

    def _exited(self, worker: Worker) -> None:
        """The attempt is over: finish it when nothing of it is left."""
        if worker.dups:
            return
        if worker.script.ending is None:  # it lives on, ready for the next
            self._finish(worker)
            return
        # Whoever hid from the two cheap questions must not meet the next attempt.
        thoroughly = self._decide(worker).event in _AGAIN
        finish = functools.partial(self._finish, worker)
        self._clear(worker.script, worker.slot, thoroughly, finish)

    def _clear(
        self, script: Script, slot: Slot, thoroughly: bool, then: Callable[[], None]
    ) -> None:
        """End what a script that has ended has left behind; then go on."""
        path = self._slots.path(slot.number)
        if self.owner.config.leave_children:
            then()
        elif script.has_children() or proc.is_locked(path):
            log.warning(
                "a script has left processes behind; RQ ends them: %s",
                fields(lease=slot.lease, pid=script.pid),
            )
            script.signal_left(TERM)
            self._spawn_task(self._sweep(slot, then))
        elif thoroughly:
            self._spawn_task(self._sweep(slot, then))
        else:
            then()

    async def _sweep(self, slot: Slot, then: Callable[[], None]) -> None:
        """End what a script has left behind, before its message goes on."""
        while left := await self._end_left(slot):
            for one in left:
                log.error(
                    "a process does not end; its message stays in run: %s",
                    fields(
                        lease=slot.lease, pid=one.pid, state=proc.state_letter(one.pid)
                    ),
                )
                os.close(one.pidfd)
            await asyncio.sleep(5.0)
        then()

    async def _end_left(self, slot: Slot) -> list[proc.Found]:
        return await self.owner.loop.run_in_executor(
            None,
            leases.end_processes,
            slot.lease,
            [self._slots.path(slot.number)],
            min(2.0, self.owner.main.grace),
        )

    def _finish(self, worker: Worker) -> None:
        owner, message = self.owner, worker.message
        claim = self._running.pop(message.msg_id)
        del owner.workers[message.msg_id]
        self._chatty.discard(worker)
        decided = self._decide(worker)
        worker.close_log(decided.event not in _WELL)
        self._end_attempt(worker, claim, decided)
        self._free(claim)
        if claim.resident is None:
            worker.script.hang_up()
            self._slots.free(worker.slot.number)
        elif worker.script.ending is None:
            self.pool.release(claim.resident)
        else:
            self.pool.forget(claim.resident)
        owner.wake()

    def _decide(self, worker: Worker) -> Outcome:
        ending, message = worker.ending, worker.message
        assert ending is not None
        decided = outcome.decide(
            worker.said, ending.exit, ending.signal, message.count, message.max_count
        )
        cut = worker.cause == Cause.STOP and decided.cause in _CUT
        if cut:
            return Outcome(
                Event.REQUEUE, Cause.STOP, "cut short by a stop of the queue"
            )
        return delivery.check_target(self.owner, decided)

    def _end_attempt(self, worker: Worker, claim: _Claim, decided: Outcome) -> None:
        owner, message = self.owner, worker.message
        msg_id = message.msg_id
        facts = self._facts(worker, claim, decided)
        riders = self._riders(msg_id, decided.event)
        changed = self._changed(message, decided, riders)
        stamped = claim.stamp is not None or claim.resident is None
        if changed is None and stamped and owner.spool.stamp(msg_id) != claim.stamp:
            changed = message  # what its script made of the file is not kept
        more: dict[str, Any] = {}
        if riders:
            more.update(riders=riders, rides=owner.full_id(msg_id))
        if decided.event not in _AGAIN:
            owner.count("err" if decided.event is Event.FAIL else "done")
            out = delivery.owes(owner, changed or message, decided, facts)
            if out:
                more["out"] = out
        line = owner.spool.fire(
            msg_id,
            decided.event,
            Role.QUEUE,
            message=changed,
            facts=facts,
            spare=changed or message,
            **more,
        )
        for rider in riders:
            owner.spool.ride(rider, decided.event, line)
        if decided.event in _AGAIN:
            owner.waits(msg_id, changed or message)
        # What comes by the thousand a second is told by the journal alone.
        quiet = claim.resident is not None and decided.event in _WELL
        log.log(
            logging.DEBUG if quiet else logging.INFO,
            "%s: %s",
            decided.event,
            fields(
                msg_id=msg_id, cause=decided.cause, pid=worker.pid, text=decided.text
            ),
        )

    def _riders(self, msg_id: str, event: Event) -> list[str]:
        """Return who ends together with a message; give the others back to que."""
        if event in (Event.FINISH, Event.RELAY):
            return self.owner.riders.pop(msg_id, [])
        self.owner.release_riders(msg_id)
        return []

    def _changed(
        self, message: Message, decided: Outcome, riders: list[str]
    ) -> Message | None:
        """Return the new content of a message whose attempt has ended, if it changed."""
        if decided.event is Event.RETRY:
            due = self.owner.spool.clock() + decided.delay
            counted = decided.cause is not Cause.LATER
            return message.with_(count=message.count + counted, due=due)
        if decided.event is Event.REQUEUE:
            return message  # its file does not know of this attempt
        if decided.cause is Cause.RESEND_LIMIT:
            return message.with_(count=message.count + 1)
        if riders:
            dups = tuple(self.owner.full_id(one) for one in reversed(riders))
            return message.with_(dups=dups)
        return None

    def _facts(self, worker: Worker, claim: _Claim, decided: Outcome) -> dict[str, Any]:
        ending = worker.ending
        assert ending is not None
        return {
            "cause": decided.cause,
            "outcome": decided.name,
            "text": decided.text,
            "exit": ending.exit,
            "signal": ending.signal,
            "wait_us": claim.wait_us,
            "run_us": int(worker.run_seconds * 1e6),
            "cpu_us": ending.cpu_us,
            "max_rss": ending.max_rss,
            "created_us": int(names.created(worker.msg_id) * 1e6),
        }

    # ---- being told to end

    def cancel(self, msg_id: str, who: str) -> bool:
        """End a running message as err; False when it is not running."""
        worker = self.owner.workers.get(msg_id)
        if worker is None:
            return False
        worker.said.by = worker.said.by or who
        resident = self._running[msg_id].resident
        if resident is not None:
            resident.retire()
        self._end(worker)
        return True

    def _end(self, worker: Worker) -> None:
        worker.script.signal(TERM)
        self.owner.loop.call_later(self.owner.main.grace, self._kill, worker)

    def _kill(self, worker: Worker) -> None:
        if worker.script.ending is None:
            log.warning(
                "a script ignores TERM; RQ kills its group: %s",
                fields(msg_id=worker.msg_id, pid=worker.pid),
            )
            worker.script.signal(KILL)

    async def stop(self) -> None:
        """Let workers end, then make them: grace, TERM, KILL; all have ended after."""
        owner = self.owner
        grace = owner.main.grace
        self.pool.renew()
        if await self._idle(grace):
            return
        for worker in owner.workers.values():
            worker.cause = Cause.STOP
        self._signal_all(TERM)
        if await self._idle(min(grace, 5.0)):
            return
        self._signal_all(KILL)
        await self._idle(30.0)

    def _signal_all(self, sig: int) -> None:
        for worker in self.owner.workers.values():
            worker.script.signal(sig)
        for resident in self.pool:
            resident.script.signal(sig)

    async def _idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._busy:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
        return True

    @property
    def _busy(self) -> bool:
        owner = self.owner
        return bool(owner.workers or owner.claimed or self.tasks or list(self.pool))

    # ---- what earlier owners left and could not be ended at start

    def look_at_ghosts(self, cause: Cause) -> None:
        """Take back messages whose process would not end, when it has."""
        still = []
        for one in self._ghosts:
            if not proc.has_ended(one.pidfd):
                still.append(one)
                continue
            os.close(one.pidfd)
            if self.owner.spool.find(one.msg_id) is State.RUN:
                lost.recover(self.owner.spool, one.msg_id, False, cause)
                if self.owner.spool.find(one.msg_id) is State.QUE:
                    self.owner.waits(one.msg_id)
                self.owner.wake()
        self._ghosts = still


_WELL = frozenset({Event.FINISH, Event.RELAY})
_AGAIN = frozenset({Event.RETRY, Event.REQUEUE})
_CUT = frozenset({Cause.EXIT, Cause.SIGNAL, Cause.NO_WORD})
_NAMES = {Event.FAIL: "err", Event.REQUEUE: "requeue"}


def _in_folder(error: OSError, msg_id: str) -> bool:
    """Whether it is the message's folder that cannot be used, not the script."""
    return msg_id in str(error.filename or "") or msg_id in str(error.filename2 or "")


def _identity(script: str) -> tuple[object, ...]:
    """Return what changes when a script is replaced or edited."""
    found = os.stat(script)
    return script, found.st_ino, found.st_mtime_ns, found.st_size
