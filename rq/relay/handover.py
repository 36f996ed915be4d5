"""One attempt to hand a message over: asks, keeps the answer, lets two_phase decide."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rq import config, names
from rq.errors import NoSuchQueue, OutcomeUnknown, Refused, RQError, Unreachable
from rq.kinds import PASSING, Kind
from rq.layout import Root
from rq.message import guarded
from rq.message.guarded import Sender
from rq.outbound import addresses, connection, peers
from rq.outbound.connection import NotAllowed
from rq.outbound.line import Lines
from rq.outbound.peers import Peer, Target
from rq.relay import answers, host_back_off, store
from rq.relay import task as tasks
from rq.relay.host_back_off import Wait
from rq.relay.remote import Remote
from rq.relay.store import Store
from rq.relay.task import Task
from rq.relay.two_phase import ENDS, Answer, Heard, Step, next_step
from rq.rpc import client
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.words.nesting import Json

MOST_STEPS = 8  # of an attempt; one that has not ended by then goes on later
GIVE_UP = 7 * 86400.0  # seconds; the receiver remembers for thirty days
_HINDERED = 60  # seconds until the next attempt, when this host itself hinders it
_HERE = "here"  # this host, among the hosts that are not asked for a while

Report = tuple[Verb, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outgoing:
    """What is handed over, and to whom."""

    task: Task
    to: Target
    fields: Mapping[str, Json]  # of the message, as the receiver gets them
    key: str  # under which the receiver knows this hand-over for ever

    @property
    def names(self) -> tuple[str, str]:
        """Return what may have to wait: the host, and its queue."""
        return self.to.peer, f"{self.to.peer}{self.to.path(self.to.queue)}"


def run(task: Task, lines: Lines) -> Report:
    """Hand a message over as far as it goes now; return what to report."""
    to = peers.target(task.message.dest)
    main = config.read_root(task.root)
    fields = tasks.travels(task)
    keeper = Store(task.job)
    again = keeper.stored.again
    key = tasks.key(task, store.installation(task.root), again)
    outgoing = _Outgoing(task=task, to=to, fields=fields, key=key)
    own = peers.is_own(to, main)
    if own:
        guarded.check(to.queue, Sender.RELAY)
    if own and not task.message.force_remote:
        return _deliver_here(outgoing, keeper)
    remote = Remote(to, lines.to(to, _peer(task.root, to, own=own)))
    return _Attempt(outgoing, remote, keeper).run()


def _peer(root: Root, to: Target, *, own: bool) -> Peer:
    """Return what is set for a host; our own web may always be asked."""
    peer = peers.read(root, to)
    if not own:
        return peer
    allow = peer.allow.and_also(addresses.allowed([to.place]))
    return dataclasses.replace(peer, allow=allow)


def _deliver_here(outgoing: _Outgoing, keeper: Store) -> Report:
    """Hand a message over to a queue of this host."""
    task, queue = outgoing.task, outgoing.to.queue
    begun, name = time.time(), f"{_HERE}/{queue}"
    answer = _copied(task, queue, outgoing.fields, outgoing.key)
    if answer.heard is Heard.SILENT:
        keeper.keep(peer=_HERE, step=Step.COMMIT, answer=answer.text)
        if (end := _end_by_age(keeper, answer)) is not None:
            return end
        return _wait_for(name, _pause(task, name, begun, answer.text), answer.text)
    _answered(task, [name])
    if answer.heard is Heard.COMMITTED:
        return Verb.RELAYED, answer.remote or ""
    return Verb.ERR, answer.text


def _copied(task: Task, queue: str, fields: Mapping[str, Json], key: str) -> Answer:
    """Let `queue` take a copy itself, attachments included, with no HTTP between; once for
    a key."""
    there = task.root.queue(queue)
    if not there.config.is_file():
        raise NoSuchQueue(f"there is no queue {queue} here")
    request = {
        "message": dict(fields),
        "queue": task.queue.name,
        "msg_id": task.message.msg_id,
        "_key": key,
    }
    try:
        reply = client.ask(there.socket, "take_copy", request)
    except (OutcomeUnknown, Unreachable) as error:
        return Answer(Heard.SILENT, str(error))
    return answers.copied(reply)


def _answered(task: Task, names: Sequence[str]) -> None:
    """Let all messages ask hosts and queues that have answered again."""

    def forget(table: host_back_off.Table) -> None:
        for name in names:
            table.pop(name, None)

    if not host_back_off.read(task.queue).keys().isdisjoint(names):
        host_back_off.change(task.queue, forget)


def _end_by_age(keeper: Store, answer: Answer) -> Report | None:
    """Return the end of a message that was tried for too long, None until then."""
    tried = time.time() - keeper.since
    if tried <= GIVE_UP:
        return None
    return Verb.ERR, f"gave up after {tried / 86400:.0f} days: {answer.text}"


class _Attempt:
    """An attempt over HTTP."""

    def __init__(self, outgoing: _Outgoing, remote: Remote, keeper: Store) -> None:
        self._task = outgoing.task
        self._outgoing = outgoing
        self._peer = outgoing.to.peer
        self._names = outgoing.names
        self._remote = remote
        self._store = keeper
        self._begun = time.time()
        self._last = Step.PREPARE  # the last step that was taken
        self._is_retry = keeper.stored.remote is not None
        self._acts: Mapping[Step, Callable[[], Answer]] = {
            Step.PREPARE: self._prepare,
            Step.ASK: self._ask,
            Step.ATTACH: self._attach,
            Step.COMMIT: self._commit,
        }

    def run(self) -> Report:
        wait = self._wait()
        if wait is not None:
            return _wait_for(wait.name, wait.seconds, wait.reason)
        try:
            step, answer = self._steps()
        except NotAllowed as error:
            return self._not_allowed(str(error))
        if step is Step.RELAYED:
            return Verb.RELAYED, self._store.stored.remote or ""
        doubt = step is Step.DOUBT
        self._store.keep(
            peer=self._peer, step=self._last, answer=answer.text, doubt=doubt
        )
        if doubt:
            return Verb.ERR, _DOUBT.format(peer=self._peer)
        if step is Step.ERR:
            return Verb.ERR, f"{self._peer} refused it: {answer.text}"
        return self._later(answer)

    def _wait(self) -> Wait | None:
        queue, names = self._task.queue, self._names
        if host_back_off.read(queue).keys().isdisjoint(names):
            return None
        return host_back_off.change(
            queue, lambda table: host_back_off.begin(table, names, self._begun)
        )

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
        except OSError as error:
            return Answer(Heard.SILENT, connection.reason(error), reached=False)

    # ---- the steps

    def _prepare(self) -> Answer:
        answer = self._remote.prepare(self._outgoing.fields, self._outgoing.key)
        if answer.remote is not None:
            notes: dict[str, Json] = {
                "remote": answer.remote,
                "keyed": answer.knows_keys,
            }
            if any(self._store.data.get(name) != notes[name] for name in notes):
                self._store.keep(**notes, committing=False, peer=self._peer)
        return answer

    def _ask(self) -> Answer:
        stored = self._store.stored
        if stored.knows_keys and not stored.forgotten:
            return self._prepare()
        return self._remote.ask(stored.remote or "")

    def _attach(self) -> Answer:
        stored = self._store.stored
        send = self._remote.attach
        if stored.knows_keys:
            # After a first try, some of it may be there; unless that was damaged.
            send = self._remote.resume if self._is_retry else self._remote.put
        else:
            self._check_names()
        for name, digests in self._task.attachments.items():
            answer = send(stored.remote or "", name, self._task.file(name), digests)
            if answer.heard is Heard.DAMAGED:
                self._is_retry = False
                self._task.prove(name)
            if answer.heard is not Heard.WHOLE:
                return answer
        return Answer(Heard.WHOLE)

    def _check_names(self) -> None:
        """Refused if a file's name would be a command to the shell of the ancestor."""
        for name in self._task.attachments:
            if not names.is_ancestors_attachment(name):
                raise Refused(_NOT_FOR_THE_ANCESTOR.format(peer=self._peer, name=name))

    def _commit(self) -> Answer:
        stored = self._store.stored
        if not stored.knows_keys and not stored.committing:
            self._store.keep(committing=True)
        answer = self._remote.commit(stored.remote or "", self._outgoing.key)
        if answer.heard is Heard.DAMAGED:
            self._is_retry = False
        if answer.remote is not None:
            self._store.keep(remote=answer.remote)
        return answer

    # ---- its end

    def _notice(self, answer: Answer) -> None:
        """Let the messages that wait for the host go on as soon as it has answered."""
        silent = answer.heard is Heard.SILENT
        names = self._names[:1] if silent else self._names
        if answer.reached:
            _answered(self._task, names)

    def _later(self, answer: Answer) -> Report:
        if (end := _end_by_age(self._store, answer)) is not None:
            return end
        names = self._names[::-1] if answer.reached else self._names
        return self._retry_later(names, answer.text)

    def _not_allowed(self, reason: str) -> Report:
        """Wait until the operator allows the host, however long: the time after which
        it gives up begins only then."""
        self._store.keep(peer=self._peer, step=self._last, answer=reason)
        if self._store.stored.remote is None:
            self._store.keep(since=time.time())
        return self._retry_later(self._names, reason)

    def _retry_later(self, names: Sequence[str], reason: str) -> Report:
        failed, *others = names
        pause = _pause(self._task, failed, self._begun, reason, others)
        return _wait_for(failed, pause, reason)


_DOUBT = (
    "in doubt: {peer} was told to accept the message, did not answer, and does not know "
    "the message now; look there whether it has arrived, then `rq relay resolve`"
)

_NOT_FOR_THE_ANCESTOR = (
    "{peer} has a Ruby RQ, which hands names of files to a shell: {name!r} is not sent "
    "there; send it under a name of letters, digits, blanks and _.+=,@()-, at most 200 "
    "bytes, beginning with a letter, a digit or _"
)


def _wait_for(name: str, seconds: int, reason: str) -> Report:
    """Return the report that lets messages for the same host or queue wait so long."""
    return Verb.LATER, f"{seconds}@{name} {reason}"


def _pause(
    task: Task, name: str, begun: float, reason: str, others: Sequence[str] = ()
) -> int:
    """Note that `name` failed; return the seconds until it is asked again."""

    def note(table: host_back_off.Table) -> int:
        host_back_off.ended(table, others)
        return host_back_off.failed(table, name, begun, time.time(), reason)

    return host_back_off.change(task.queue, note)


# What keeps an attempt from its beginning, and passes or is mended by a person.
_WAITS = PASSING | {Kind.BAD_CONFIG}


def refused(job: Path, error: RQError) -> Report:
    """Return the report for what can be known to fail before anybody is asked."""
    if error.kind in _WAITS:
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
    return _end_by_age(keeper, Answer(Heard.SILENT, reason)) or later
