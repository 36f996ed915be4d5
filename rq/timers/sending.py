"""Sends the message of a timer that is due, and notes what became of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rq import names
from rq.builtin.flow import deeds, door, look, record
from rq.errors import NoSuchMessage, NotUnique, Refused, RQError, Unreachable
from rq.kinds import Kind
from rq.layout import Root
from rq.message import fieldnames, guarded
from rq.message.guarded import Sender
from rq.rpc import client, loop_client
from rq.rpc.lines import parked_answers
from rq.timers import folder, missed
from rq.timers.folder import Timers
from rq.timers.missed import Span, Why
from rq.timers.outcomes import Outcomes
from rq.timers.past import Fire, Past, noted
from rq.timers.rows import RUN, SENT
from rq.timers.rule import Overlap, Timer
from rq.timers.telling import Telling
from rq.timers.when import counts_from, due, nominal
from rq.words.states import LIVE, State

_ERRORS = 3.0  # seconds between two writes for the sake of errors
LOOK = 1.0  # seconds between looks at the directory and at the clock
SELDOM = 6.0  # the same while nothing goes on
_STIR = 6.0  # seconds for which it looks often after something went on
# Failures that say for sure that no message was made.
_NOT_SENT = frozenset({Kind.DOWN, Kind.CLOSED, Kind.NO_SUCH_QUEUE, Kind.UNREACHABLE})
_WAITS = frozenset({Kind.DOWN, Kind.CLOSED})  # for a person, and no fault
_SILENT = frozenset({Kind.UNREACHABLE, Kind.OUTCOME_UNKNOWN})

log = logging.getLogger(__name__)
ASK_TIMEOUT = 10.0  # seconds
_LASTING = frozenset({State.DONE, State.RELAYED, State.GONE})


@dataclass(slots=True)
class Sending:
    """Fires the timers of a root, each beside the others."""

    held: Timers
    sent: int = 0
    failed: int = 0
    busy: dict[str, asyncio.Task[object]] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    outcomes: Outcomes = field(init=False)
    telling: Telling = field(init=False)
    _saving: asyncio.Task[None] | None = None
    _errors_saved: float = 0.0  # of the monotonic clock
    # When something went on last, of the monotonic clock.
    stirred: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.outcomes = Outcomes(self.held.root, self.held.fires, self.woken)
        self.telling = Telling(self.held)

    def ready(self, now: float) -> list[Timer]:
        """Return the timers to fire now."""
        return [timer for timer in self._free() if self._due(timer, now) <= now]

    def next_due(self, now: float) -> float:
        """Return the seconds until the next is due."""
        waits = [self._due(timer, now) for timer in self._free()]
        return max(0.0, min(waits, default=now + SELDOM) - now)

    def pause(self, elapsed: float) -> float:
        """Return the seconds until it is to look again if nothing wakes it; `elapsed` are
        seconds of the monotonic clock."""
        held = self.held
        is_wrong = held.gone_since or held.errors or held.queueless
        often = is_wrong or elapsed < self.stirred + _STIR
        # A question that was just asked is no reason to look at all else at once.
        question = max(LOOK, self.outcomes.next_in(elapsed))
        return LOOK if often else min(SELDOM, question)

    def _free(self) -> list[Timer]:
        return [
            timer
            for name, timer in self.held.timers.items()
            if name not in self.busy and self.held.past[name].paused is None
        ]

    def _due(self, timer: Timer, now: float) -> float:
        return due(timer, self.held.past[timer.name], now)

    def begin(self, timer: Timer, now: float) -> None:
        """Fire a timer beside the others: a queue that hangs delays its own alone."""
        self._alone(timer.name, self.fire(timer, now))

    async def run(self, timer: Timer) -> str:
        """Send a message of a timer now, beside its beat; return its URL."""
        while timer.name in self.busy:
            await asyncio.wait([self.busy[timer.name]])
        now = time.time()
        task = self._alone(timer.name, self._send(timer, timer.key(now, "timer-run")))
        url = str(await task)
        self.sent += 1
        fires = self._past(timer).fires
        fire = Fire(nominal=now, tried=now, said=RUN, msg=url)
        self.held.note(timer.name, fires=noted(fires, fire))
        self.held.fires.fired(timer.name, now, now, now, RUN, url)
        await self._saved()
        return url

    def _alone(
        self, name: str, work: Coroutine[object, object, object]
    ) -> asyncio.Task[object]:
        def ended(_task: asyncio.Task[object]) -> None:
            del self.busy[name]
            self.woken.set()

        task = asyncio.get_running_loop().create_task(_of(work))
        self.busy[name] = task
        task.add_done_callback(ended)
        return task

    async def fire(self, timer: Timer, now: float) -> None:
        """Send the message of a timer, or note why not."""
        in_doubt = self._past(timer).begun is not None
        try:
            result = await self._fired(timer, now)
        except NotUnique as error:
            self._refused(timer, now, error)
        except (RQError, OSError) as error:
            self._failed(timer, now, error, in_doubt=in_doubt)
        except Exception as error:
            # Whatever answers there is no queue of ours. Back off: to ask it again at
            # once, and again, would keep a core busy.
            log.exception("timer %s could not be sent", timer.name)
            self._not_sent(timer, now, f"{type(error).__name__}: {error}")
        else:
            log.info("timer %s: %s", timer.name, result)

    async def _fired(self, timer: Timer, now: float) -> str:
        """Send the message of the fire that is due; return what is said of it.

        Its time is on disk before the message is sent under it: after a crash, or an
        answer that was lost, the same message is asked for again.
        """
        past = self._past(timer)
        begun = nominal(timer, past, now)
        if past.begun is None:
            why = await self._in_the_way(timer, past, begun)
            if why:
                return self._left_out(timer, Fire(begun, now, why), Why.OVERLAP)
            self.held.note(timer.name, begun=begun)
        await self._saved()
        url = await self._send(timer, timer.key(begun))
        self.sent += 1
        accepted = min(names.created(place_of(url)[1]), time.time())
        self._note_fire(timer, begun, now, url)
        return self._is_over(timer, begun, accepted, Fire(begun, now, SENT, url))

    def _refused(self, timer: Timer, now: float, error: NotUnique) -> None:
        """An equal message stands, so the fire is left out: it is not tried again."""
        begun = self._past(timer).begun or now
        fire = Fire(begun, now, f"refused: {error}")
        result = self._left_out(timer, fire, Why.REFUSED)
        log.info("timer %s: %s", timer.name, result)

    async def _saved(self) -> None:
        """Wait until all that is noted is on disk; fires of one moment share a write."""
        if self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save())
        await asyncio.shield(self._saving)

    async def _save(self) -> None:
        await asyncio.sleep(0)  # those that were begun with it note theirs first
        self._saving = None
        self.held.save()

    def save_errors(self, elapsed: float) -> None:
        """Let others read what is wrong, now and then; `elapsed` are seconds of a clock
        that is never set."""
        if elapsed - self._errors_saved >= _ERRORS or not self._errors_saved:
            self._errors_saved = elapsed
            self.held.save_errors()

    def _note_fire(self, timer: Timer, begun: float, now: float, url: str) -> None:
        """Note that a fire was sent, and those that it leaves behind."""
        base = self.held.base_of(timer)
        planned = missed.planned(timer, base, begun)
        self._note_missed(timer, missed.before(timer, base, begun), now)
        self.held.fires.fired(timer.name, begun, planned, now, SENT, url)

    def _note_missed(self, timer: Timer, span: Span | None, now: float) -> None:
        why = missed.why(self._past(timer), now)
        self.held.fires.missed(timer.name, span, why, now)

    def _left_out(self, timer: Timer, fire: Fire, why: Why) -> str:
        """Note that a fire is left out, and those before it; return what is said of it."""
        base, begun = self.held.base_of(timer), fire.nominal
        self._note_missed(timer, missed.before(timer, base, begun), fire.tried)
        moment = missed.planned(timer, base, begun)
        span = Span(moment, moment, 1)
        self.held.fires.missed(timer.name, span, (why, fire.said), fire.tried)
        return self._is_over(timer, begun, fire.tried, fire)

    def _is_over(self, timer: Timer, begun: float, at: float, fire: Fire) -> str:
        result = f"{fire.said} {fire.msg}".rstrip()
        self.held.note(
            timer.name,
            begun=None,
            last=counts_from(timer, begun, at),
            result=result,
            error="",
            failures=0,
            tried=fire.tried,
            fires=noted(self._past(timer).fires, fire),
        )
        return result

    async def _in_the_way(self, timer: Timer, past: Past, begun: float) -> str:
        """Return why a fire is left out: an earlier message has not ended. With
        `replace` that is taken out, and Refused tells to try again once it has ended.

        A clock that was put back brings the time of a fire again, whose key names the
        message that it has sent: that is not in its own way."""
        if timer.overlap is Overlap.QUEUE:
            return ""
        states = await states_of(self.held.root, past.fires)
        fires = with_states(self._past(timer).fires, states)
        self.held.note(timer.name, fires=fires)
        own = {fire.msg for fire in fires if fire.nominal == begun}
        live = {m: s for m, s in unfinished(states).items() if m not in own}
        if not live:
            return ""
        msg = next(iter(live))
        if timer.overlap is Overlap.SKIP:
            return await _skipped(self.held.root, *place_of(msg))
        for each, state in live.items():
            await take_out(self.held.root, each, state, f"timer {timer.name}")
        raise Refused(f"{place_of(msg)[1]} is being ended, to be replaced")

    async def _send(self, timer: Timer, key: str) -> str:
        """Return the URL of the message that the queue has accepted under a key."""
        guarded.check(timer.queue, Sender.TIMER)
        if timer.flow is not None:
            plan = replace(timer.flow, key=key)
            whose = {fieldnames.BY: f"{fieldnames.OF_TIMER}{timer.name}"}
            sent = await asyncio.to_thread(door.send, self.held.root, plan, whose)
            return sent.url
        socket = self.held.root.queue(timer.queue).socket
        whose = {"_key": key, fieldnames.BY: f"{fieldnames.OF_TIMER}{timer.name}"}
        message = {**timer.fields, "dest": timer.dest, **whose}
        reply = await loop_client.ask(
            socket, "create_message", message, timeout=ASK_TIMEOUT
        )
        return str(client.demanded(reply, f"queue {timer.queue} refused it: "))

    def _failed(
        self, timer: Timer, now: float, error: Exception, *, in_doubt: bool
    ) -> None:
        kind = error.kind if isinstance(error, RQError) else Kind.INTERNAL
        if kind in _NOT_SENT and not in_doubt:
            # What it is to catch up is decided when its queue takes messages again.
            self.held.note(timer.name, begun=None)
        past, lacks = self._past(timer), folder.lacks(self.held.root, timer)
        if past.begun is None:  # those before the newest are over; that is tried again
            newest = nominal(timer, past, now)
            span = missed.before(timer, self.held.base_of(timer), newest)
            self._note_missed(timer, span, now)
        why = lacks or _why(timer.queue, error)
        self.held.note(timer.name, why=_reason(kind, lacks))
        self._not_sent(timer, now, why, waits=kind in _WAITS)

    def _not_sent(
        self, timer: Timer, now: float, why: str, *, waits: bool = False
    ) -> None:
        past = self._past(timer)
        said = {"result": f"waits: {why}", "error": ""}
        if not waits:
            said = {"result": "failed", "error": why}
            self.failed += 1
            if why != past.error:
                log.warning("timer %s: %s", timer.name, why)
        failures = past.failures + 1
        self.held.note(timer.name, failures=failures, tried=now, **said)

    def _past(self, timer: Timer) -> Past:
        return self.held.past.get(timer.name, Past())


async def _of(work: Coroutine[object, object, object]) -> object:
    return await work


def _reason(kind: Kind, lacks: str) -> Why:
    """Return in a word why a queue did not take the message of a timer."""
    if lacks or kind is Kind.NO_SUCH_QUEUE:
        return Why.NO_QUEUE
    return Why.DOWN if kind in _SILENT else Why.REFUSED


def _why(queue: str, error: Exception) -> str:
    """Return in a sentence why a queue did not take the message of a timer."""
    if isinstance(error, Unreachable):
        return f"queue {queue} does not answer: `rq status` says why"
    return str(error)


# ---- what became of the messages, as their queue tells it


async def states_of(root: Root, fires: Sequence[Fire]) -> dict[str, str]:
    """Return the states of the messages of fires that may have changed, by their URLs.

    Unreachable, OutcomeUnknown: the queue of one of them does not answer.
    """
    return {
        fire.msg: await _state(root, *place_of(fire.msg))
        for fire in fires
        if fire.msg and fire.outcome not in _LASTING
    }


def with_states(fires: Sequence[Fire], states: Mapping[str, str]) -> tuple[Fire, ...]:
    """Return fires with the states that their messages were seen in."""
    return tuple(
        replace(fire, outcome=states.get(fire.msg, fire.outcome)) for fire in fires
    )


def unfinished(states: Mapping[str, str]) -> dict[str, str]:
    """Return those that wait or run."""
    return {msg: state for msg, state in states.items() if state in LIVE}


async def take_out(root: Root, msg: str, state: str, who: str) -> None:
    """Take a message out that waits, or end one that runs, which takes a moment."""
    queue, msg_id = place_of(msg)
    if queue == record.QUEUE:
        flow = await asyncio.to_thread(look.flow_of, root, msg_id)
        await asyncio.to_thread(deeds.cancel, root, flow, who)
        return
    command = "cancel_message" if state == State.RUN else "delete_message"
    request = {"msg_id": msg_id, "who": who}
    client.demanded(await _ask(root, queue, command, request))


def place_of(msg: str) -> tuple[str, str]:
    """Return the queue and the id in the URL of a message of ours.

    >>> place("http://h:3333/q/mail/20260102.0304.05.006.7")
    ('mail', '20260102.0304.05.006.7')
    """
    _, queue, msg_id = msg.rsplit("/", 2)
    return queue, msg_id


async def _state(root: Root, queue: str, msg_id: str) -> str:
    if queue == record.QUEUE:
        return await _state_of_flow(root, msg_id)
    request = {"msg_id": msg_id}
    reply: object = await asyncio.to_thread(
        parked_answers.answer, root, queue, "get_message_state", request
    )
    if reply is None:
        reply = await _ask(root, queue, "get_message_state", request)
    try:
        return str(client.demanded(reply))
    except NoSuchMessage:
        return State.GONE


async def _state_of_flow(root: Root, msg_id: str) -> str:
    """Return `run` while a message of a flow waits or runs, also one that waits for a
    person: a flow that was not ended is in the way of the next."""
    try:
        flow = await asyncio.to_thread(look.flow_of, root, msg_id)
        if look.goes_on(flow):
            return State.RUN
        end = await asyncio.to_thread(look.end_of, root, msg_id)
    except NoSuchMessage:
        return State.GONE
    return end["state"]


async def _skipped(root: Root, queue: str, msg_id: str) -> str:
    """Return why a fire is left out whose earlier message has not ended."""
    if queue == record.QUEUE:
        end = await asyncio.to_thread(look.end_of, root, msg_id)
        if end["state"] == State.ERR:
            return (
                f"skipped: flow {msg_id} has failed and waits for a person: "
                f"`rq flow show {msg_id}`"
            )
    return f"skipped: {msg_id} has not ended"


async def _ask(root: Root, queue: str, command: str, request: object) -> object:
    socket = root.queue(queue).socket
    return await loop_client.ask(socket, command, request, timeout=ASK_TIMEOUT)
