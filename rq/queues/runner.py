"""Claims what is due, starts workers, hears them, and ends their attempts.

Order that must not change: the claim is durable before the script starts; all of its
children have ended before its final event; the final event is durable before its folder
moves.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rq import names, pipe, proc, retry
from rq.causes import Cause
from rq.errors import BadInput, BadMessage, NoSuchMessage, RQError
from rq.logs import fields
from rq.message import Message
from rq.pipe import Report, Verb
from rq.queues import delivery, environment, handover, outcome
from rq.queues.outcome import Outcome
from rq.queues.owner import Owner
from rq.queues.worker import KILL, TERM, Plan, Worker, find_program
from rq.spool import leases, lost
from rq.states import Event, Role, State

PROGRESS_SECONDS = 0.2  # at most that often the file `status` of a running message
SCRIPT_SECONDS = 2.0  # how often a script that cannot be started is looked at again
_MISSING = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR,
                      errno.ELOOP, errno.EPERM, errno.EISDIR})  # fmt: skip

# What an earlier attempt can have made of a folder: no reason to try it again.
_RUINED = _MISSING | {errno.EEXIST, errno.EINVAL, errno.ENXIO, errno.ENAMETOOLONG}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Claim:
    message: Message
    slot: int
    lease: int
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
        self._counter = 0
        self._hold_until = 0.0
        self._failures = 0
        self._retry_script = 0.0
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
        slot, lease = self._take_slot()
        owner.leaves(msg_id)
        try:
            message = owner.spool.claim(msg_id, slot)
        except (BadMessage, NoSuchMessage) as error:
            os.close(lease)
            lost.fail_malformed(owner.spool, msg_id, str(error))
            return
        owner.gather_riders(msg_id, group)
        owner.claimed.add(msg_id)
        if key is not None:
            owner.busy_keys[key] = msg_id
        self._claims.append(_Claim(message, slot, lease, key, wait_us, seq))

    def _take_slot(self) -> tuple[int, int]:
        """Return a free lease slot and its locked descriptor."""
        used = {one.slot for one in self._running.values()}
        used.update(one.slot for one in self._claims)
        slot = 0
        while True:
            if slot not in used:
                fd = proc.lock(self._slot_path(slot))
                if fd is not None:
                    return slot, fd
            slot += 1

    def _slot_path(self, slot: int) -> Path:
        return self.owner.queue.path / "lease" / str(slot)

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
            finally:
                os.close(claim.lease)

    def _start(self, claim: _Claim) -> None:
        owner, message = self.owner, claim.message
        owner.spool.settle(message.msg_id)
        directory = owner.spool.work_dir(message.msg_id)
        script = self._script
        self._counter += 1
        start = owner.spool.journal.start
        lease = f"{owner.opened.lease_prefix}{claim.slot}/{start}.{self._counter}"
        env = environment.for_message(
            owner.base_env,
            owner.main,
            owner.name,
            message,
            script=script,
            directory=directory,
            lease=lease,
        )
        stamp = owner.spool.stamp(message.msg_id)
        argv = find_program([*owner.argv_prefix, script], env.get("PATH", ""))
        worker = Worker(
            Plan(
                message=message,
                argv=argv,
                script=script,
                env=env,
                directory=directory,
                slot=claim.slot,
                lease=claim.lease,
                nice=owner.config.nice,
                null=self._null,
            ),
            owner.loop,
            self._hear,
            self._exited,
        )
        owner.workers[message.msg_id] = worker
        self._running[message.msg_id] = replace(claim, stamp=stamp)
        self._failures = 0
        self._script_is_back()

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
        script = self._script = self._real_script()
        if os.path.isfile(script) and os.access(script, os.X_OK):
            self._retry_script = 0.0
            if self._unfit:
                self._script_is_back()
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
        self._retry_script = 0.0

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
                self.owner.spool.write_progress(worker.msg_id, worker.said.text)

    def _dup(self, worker: Worker, text: str) -> None:
        try:
            asked = pipe.parse_dup(text)
        except BadInput as error:
            worker.answer(pipe.dup_reply(False, f"dup failed - {error}"))
            return
        worker.dups += 1
        self._spawn_task(self._answer_dup(worker, asked))

    async def _answer_dup(self, worker: Worker, asked: pipe.Dup) -> None:
        try:
            full_id = await handover.dup(self.owner, worker.message, asked)
            worker.answer(pipe.dup_reply(True, full_id))
        except RQError as error:
            worker.answer(pipe.dup_reply(False, str(error)))
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

    def _exited(self, worker: Worker) -> None:
        """The script has ended and its pipe is read to the end."""
        if worker.dups:
            return
        slot = self._slot_path(worker.slot)
        if self.owner.config.leave_children:
            self._finish(worker)
        elif worker.has_children() or proc.is_locked(slot):
            log.warning(
                "a script has left processes behind; RQ ends them: %s",
                fields(msg_id=worker.msg_id, pid=worker.pid),
            )
            worker.signal_left(TERM)
            self._spawn_task(self._sweep(worker, slot))
        elif self._decide(worker).event in _AGAIN:
            # Whoever hid from the two cheap questions must not meet the next attempt.
            self._spawn_task(self._sweep(worker, slot))
        else:
            self._finish(worker)

    async def _sweep(self, worker: Worker, slot: Path) -> None:
        """End what a script has left behind, before its message goes on."""
        left = await self.owner.loop.run_in_executor(
            None,
            leases.end_processes,
            worker.lease,
            [slot],
            min(2.0, self.owner.main.grace),
        )
        for one in left:
            log.error(
                "a process does not end; its message stays in run: %s",
                fields(
                    msg_id=worker.msg_id, pid=one.pid, state=proc.state_letter(one.pid)
                ),
            )
            os.close(one.pidfd)
        if left:
            self.owner.loop.call_later(5.0, self._exited, worker)
        else:
            self._finish(worker)

    def _finish(self, worker: Worker) -> None:
        owner, message = self.owner, worker.message
        claim = self._running.pop(message.msg_id)
        del owner.workers[message.msg_id]
        self._chatty.discard(worker)
        worker.close()
        decided = self._decide(worker)
        self._end_attempt(worker, claim, decided)
        self._free(claim)
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
        if changed is None and owner.spool.stamp(msg_id) != claim.stamp:
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
        log.info(
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
            return message.with_(count=message.count + 1, due=due)
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
        self._end(worker)
        return True

    def _end(self, worker: Worker) -> None:
        worker.signal(TERM)
        self.owner.loop.call_later(self.owner.main.grace, self._kill, worker)

    def _kill(self, worker: Worker) -> None:
        if worker.ending is None:
            log.warning(
                "a script ignores TERM; RQ kills its group: %s",
                fields(msg_id=worker.msg_id, pid=worker.pid),
            )
            worker.signal(KILL)

    async def stop(self) -> None:
        """Let workers end, then make them: grace, TERM, KILL; all have ended after."""
        owner = self.owner
        grace = owner.main.grace
        if await self._idle(grace):
            return
        for worker in list(owner.workers.values()):
            worker.cause = Cause.STOP
            worker.signal(TERM)
        if await self._idle(min(grace, 5.0)):
            return
        for worker in list(owner.workers.values()):
            worker.signal(KILL)
        await self._idle(30.0)

    async def _idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.owner.workers or self.owner.claimed or self.tasks:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
        return True

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


_AGAIN = frozenset({Event.RETRY, Event.REQUEUE})
_CUT = frozenset({Cause.EXIT, Cause.SIGNAL, Cause.NO_WORD})
_NAMES = {Event.FAIL: "err", Event.REQUEUE: "requeue"}


def _in_folder(error: OSError, msg_id: str) -> bool:
    """Whether it is the message's folder that cannot be used, not the script."""
    return msg_id in str(error.filename or "") or msg_id in str(error.filename2 or "")
