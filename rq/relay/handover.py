"""One attempt to hand a message over: asks, writes down, and lets the table decide."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rq import config, host_back_off, script
from rq.errors import BadConfig, RQError
from rq.host_back_off import Wait
from rq.layout import Root
from rq.outbound import addresses, connection, peers
from rq.outbound.line import Lines, NotAllowed
from rq.outbound.peers import Peer, Target
from rq.pipe import Verb
from rq.relay import local, store, task
from rq.relay.remote import Remote
from rq.relay.store import Store
from rq.relay.task import Task
from rq.relay.two_phase import ENDS, Answer, Heard, Step, next_step

MOST_STEPS = 8  # of an attempt; one that has not ended by then goes on later
GIVE_UP = 7 * 86400.0  # seconds; the receiver remembers for thirty days
_HINDERED = 60  # seconds until the next attempt, when this host itself hinders it
_HERE = "here"  # this host, in what is told of who is left alone

Report = tuple[Verb, str]


def run(one: Task, lines: Lines) -> Report:
    """Hand a message over as far as it goes now; return what to report."""
    to = peers.target(one.message.dest)
    main = config.read_root(one.root)
    fields = task.travels(one)
    keeper = Store(one.job)
    again = keeper.stored.again
    key = task.key(one, store.installation(one.root), again)
    own = peers.is_own(to, main)
    if own and not one.message.force_remote:
        return _here(one, to, fields, key, keeper)
    remote = Remote(to, lines.to(to, _peer(one.root, to, own=own)))
    return _Attempt(one, to, fields, key, remote, keeper).run()


def _peer(root: Root, to: Target, *, own: bool) -> Peer:
    """Return what is set for a host; our own web may always be asked."""
    peer = peers.read(root, to)
    if not own:
        return peer
    allow = peer.allow.and_also(addresses.allowed([to.place]))
    return dataclasses.replace(peer, allow=allow)


def _here(
    one: Task, to: Target, fields: Mapping[str, Any], key: str, keeper: Store
) -> Report:
    begun, name = time.time(), f"{_HERE}/{to.queue}"
    answer = local.deliver(one, to.queue, fields, key)
    if answer.heard is Heard.SILENT:
        keeper.keep(peer=_HERE, step=Step.COMMIT, answer=answer.text)
        if (tried := _tried_too_long(keeper, answer)) is not None:
            return tried
        return _leave_alone(name, _pause(one, name, begun, answer.text), answer.text)
    _answered(one, [name])
    if answer.heard is Heard.COMMITTED:
        return Verb.RELAYED, answer.remote or ""
    return Verb.ERR, answer.text


def _answered(one: Task, names: Sequence[str]) -> None:
    """Leave those alone no longer."""
    if not host_back_off.read(one.queue).keys().isdisjoint(names):
        host_back_off.change(
            one.queue, lambda table: [table.pop(o, None) for o in names]
        )


def _tried_too_long(keeper: Store, answer: Answer) -> Report | None:
    tried = time.time() - keeper.since
    if tried <= GIVE_UP:
        return None
    return Verb.ERR, f"gave up after {tried / 86400:.0f} days: {answer.text}"


class _Attempt:
    """An attempt over HTTP."""

    def __init__(
        self,
        one: Task,
        to: Target,
        fields: Mapping[str, Any],
        key: str,
        remote: Remote,
        keeper: Store,
    ) -> None:
        self._task = one
        self._to = to
        self._fields = fields
        self._key = key
        self._remote = remote
        self._store = keeper
        self._begun = time.time()
        self._is_retry = keeper.stored.remote is not None
        self._acts: Mapping[Step, Callable[[], Answer]] = {
            Step.PREPARE: self._prepare,
            Step.ASK: self._ask,
            Step.ATTACH: self._attach,
            Step.COMMIT: self._commit,
        }

    @property
    def _names(self) -> tuple[str, str]:
        """Return what may be left alone: the host, and its queue."""
        return self._to.peer, f"{self._to.peer}{self._to.path(self._to.queue)}"

    def run(self) -> Report:
        wait = self._wait()
        if wait is not None:
            return _leave_alone(wait.name, wait.seconds, wait.reason)
        try:
            step, answer = self._steps()
        except NotAllowed as error:
            return self._not_allowed(str(error))
        if step is Step.RELAYED:
            return Verb.RELAYED, self._store.stored.remote or ""
        doubt = step is Step.DOUBT
        self._store.keep(
            peer=self._to.peer, step=self._last, answer=answer.text, doubt=doubt
        )
        if doubt:
            return Verb.ERR, _DOUBT.format(peer=self._to.peer)
        if step is Step.ERR:
            return Verb.ERR, f"{self._to.peer} refused it: {answer.text}"
        return self._later(answer)

    def _wait(self) -> Wait | None:
        queue, names = self._task.queue, self._names
        if host_back_off.read(queue).keys().isdisjoint(names):
            return None
        found: Wait | None = host_back_off.change(
            queue, lambda table: host_back_off.begin(table, names, self._begun)
        )
        return found

    def _steps(self) -> tuple[Step, Answer]:
        step, answer = next_step(self._store.stored, None), Answer(Heard.SILENT)
        for _ in range(MOST_STEPS):
            self._last = step
            if step is Step.ATTACH and self._task.attachments:
                script.say(Verb.RUN, f"{len(self._task.attachments)} attachments")
            answer = self._try(self._acts[step])
            self._notice(answer)
            step = next_step(self._store.stored, answer)
            if step in ENDS:
                return step, answer
        return Step.LATER, answer

    def _try(self, act: Callable[[], Answer]) -> Answer:
        try:
            return act()
        except (OSError, http.client.HTTPException) as error:
            return Answer(Heard.SILENT, connection.reason(error), reached=False)

    # ---- the steps

    def _prepare(self) -> Answer:
        answer = self._remote.prepare(self._fields, self._key)
        if answer.remote is not None:
            known = {"remote": answer.remote, "keyed": answer.keyed}
            kept = {name: self._store.data.get(name) for name in known}
            if kept != known:
                self._store.keep(**known, committing=False, peer=self._to.peer)
        return answer

    def _ask(self) -> Answer:
        stored = self._store.stored
        if stored.keyed and not stored.forgotten:
            return self._prepare()
        return self._remote.ask(stored.remote or "")

    def _attach(self) -> Answer:
        stored = self._store.stored
        send = self._remote.attach
        if stored.keyed:
            # After a first try, some of it may be there; unless that was damaged.
            send = self._remote.resume if self._is_retry else self._remote.put
        for name, known in self._task.attachments.items():
            answer = send(stored.remote or "", name, self._task.file(name), known)
            if answer.heard is Heard.DAMAGED:
                self._is_retry = False
                self._task.prove(name)
            if answer.heard is not Heard.WHOLE:
                return answer
        return Answer(Heard.WHOLE)

    def _commit(self) -> Answer:
        stored = self._store.stored
        if not stored.keyed and not stored.committing:
            self._store.keep(committing=True)
        answer = self._remote.commit(stored.remote or "", self._key)
        if answer.heard is Heard.DAMAGED:
            self._is_retry = False
        return answer

    # ---- its end

    def _notice(self, answer: Answer) -> None:
        """Let the others go on as soon as it is known that they can."""
        silent = answer.heard is Heard.SILENT
        names = self._names[:1] if silent else self._names
        if answer.reached:
            _answered(self._task, names)

    def _later(self, answer: Answer) -> Report:
        if (tried := _tried_too_long(self._store, answer)) is not None:
            return tried
        names = self._names[::-1] if answer.reached else self._names
        return self._left(names, answer.text)

    def _not_allowed(self, reason: str) -> Report:
        """Wait for the operator, however long: only then does it begin."""
        since = {} if self._store.stored.remote else {"since": time.time()}
        kept = {"peer": self._to.peer, "step": self._last, "answer": reason, **since}
        self._store.keep(**kept)
        return self._left(self._names, reason)

    def _left(self, names: Sequence[str], reason: str) -> Report:
        failed, *others = names
        pause = _pause(self._task, failed, self._begun, reason, others)
        return _leave_alone(failed, pause, reason)


_DOUBT = (
    "in doubt: {peer} was told to commit, did not answer, and does not know the message "
    "now; look there, then `rq relay resolve`"
)


def _leave_alone(name: str, seconds: int, reason: str) -> Report:
    """Let no message for the same queue be tried before that."""
    return Verb.LATER, f"{seconds}@{name} {reason}"


def _pause(
    one: Task, name: str, begun: float, reason: str, others: Sequence[str] = ()
) -> int:
    def note(table: dict[str, dict[str, Any]]) -> int:
        host_back_off.asked(table, others)
        return host_back_off.failed(table, name, begun, time.time(), reason)

    return int(host_back_off.change(one.queue, note))


def refused(job: Path, error: RQError) -> Report:
    """Return the report for what can be known to fail before anybody is asked."""
    if isinstance(error, BadConfig):
        return hindered(job, str(error))
    return Verb.ERR, str(error)


def hindered(job: Path, reason: str) -> Report:
    """Return the report of an attempt that came to nothing here: later, and err when it
    has been so for as long as any host is asked."""
    later = Verb.LATER, f"{_HINDERED}-{reason}"
    try:
        keeper = Store(job)
    except OSError:  # nor is it known since when; a later attempt may read it
        return later
    with contextlib.suppress(OSError):  # then it begins anew with the next attempt
        keeper.keep(answer=reason)
    return _tried_too_long(keeper, Answer(Heard.SILENT, reason)) or later
