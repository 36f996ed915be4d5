"""An attempt goes through its phases in order, and is decided once."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from rq.errors import WrongState
from rq.message.causes import Cause
from rq.message.message import Message
from rq.proc.spawn import Termination
from rq.queues.attempts.attempt import Attempt, Batch, Claim, Work
from rq.queues.attempts.outcome import Outcome
from rq.queues.attempts.phases import PHASES, Phase, Step, next_phase
from rq.queues.attempts.registry import Attempts
from rq.scripts.slots import Slot
from rq.words.states import Event

EXIT = Termination(0, None, None, None)
DONE = Outcome(Event.FINISH, Cause.DONE, "well")


def claimed(msg_id="20260102.0304.05.006.7", **more):
    message = Message(msg_id=msg_id, dest="t", due=0.0)
    slot = Slot(3, -1, "lease")
    return Attempt(Claim(message=message, slot=slot, seq=1, wait_us=0, **more))


def script():
    return Work(script=SimpleNamespace(termination=EXIT, pid=7), log=None)


def test_each_phase_leads_to_the_end():
    reached = {Phase.CLAIMED}
    for _ in Phase:
        reached |= {target for (phase, _), target in PHASES.items() if phase in reached}
    assert reached == set(Phase)
    assert {phase for phase, _ in PHASES} == set(Phase) - {Phase.ENDED}


@pytest.mark.parametrize(
    ("phase", "step"), sorted(set(itertools.product(Phase, Step)) - set(PHASES))
)
def test_what_cannot_happen_is_an_error(phase, step):
    with pytest.raises(WrongState, match=f"is {phase} cannot {step}"):
        next_phase(phase, step)


def test_the_attempt_of_a_script_starts_hears_finishes_and_ends():
    attempt = claimed()
    assert not attempt.at_work
    attempt.start(script())
    assert (attempt.phase, attempt.at_work) == ("starting", True)
    attempt.hear()
    attempt.hear()
    assert (attempt.phase, attempt.at_work) == ("running", True)
    attempt.finish(EXIT)
    assert (attempt.phase, attempt.at_work) == ("finishing", False)
    attempt.end()
    assert attempt.has_ended


@pytest.mark.parametrize(
    "again", [Attempt.end, Attempt.hear, lambda attempt: attempt.finish(EXIT)]
)
def test_nothing_happens_to_an_attempt_that_has_ended(again):
    attempt = claimed()
    attempt.end()
    with pytest.raises(WrongState):
        again(attempt)


@pytest.mark.parametrize("begin", [Attempt.start, Attempt.hand_over])
def test_a_message_does_not_go_on_while_its_script_works(begin):
    attempt = claimed()
    begin(attempt, script())
    attempt.hear()
    with pytest.raises(WrongState, match="running cannot end"):
        attempt.end()


def test_what_cannot_happen_is_logged(caplog):
    loop = asyncio.new_event_loop()
    loop.call_soon(claimed().hear)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert "an attempt that is claimed cannot hear" in caplog.text


def test_an_attempt_is_decided_once():
    attempt = claimed()
    assert attempt.decide(DONE) is DONE
    with pytest.raises(WrongState, match="decided once"):
        attempt.decide(DONE)
    assert attempt.outcome is DONE


def test_who_cancels_before_the_end_is_heard_though_it_was_decided():
    attempt = claimed()
    attempt.decide(DONE)
    attempt.cancel("anna")
    attempt.cancel("bert")
    assert attempt.outcome.text == "cancelled by anna"


def test_what_was_said_of_one_stands_when_its_batch_is_cancelled():
    attempts = [claimed(f"20260102.0304.05.006.{n}", batch_id="b") for n in range(2)]
    batch = Batch("b", attempts, attempts[0].slot)
    batch.start(script().script, None)
    attempts[0].said.word = "done"
    for attempt in batch:
        attempt.decide(DONE)
    batch.cancel("anna")
    assert [attempt.outcome.cause for attempt in attempts] == ["done", "cancelled"]


# ---- the registry


def test_an_attempt_is_known_from_its_start_and_takes_a_slot_from_its_claim():
    attempts, attempt = Attempts(), claimed()
    attempts.claim(attempt)
    assert (attempts.of(attempt.msg_id), attempts.slots_used) == (None, 1)
    attempts.start([attempt])
    assert (attempts.of(attempt.msg_id), attempts.slots_used) == (attempt, 1)
    attempts.forget(attempt)
    assert (attempts.of(attempt.msg_id), attempts.slots_used) == (None, 0)
    assert attempts.none_left


def test_a_batch_takes_one_slot_until_its_process_has_gone():
    attempts = Attempts()
    members = [claimed(f"20260102.0304.05.006.{n}", batch_id="b") for n in range(3)]
    batch = Batch("b", members, members[0].slot)
    for attempt in members:
        attempts.claim(attempt)
    attempts.add_batch(batch)
    assert attempts.slots_used == 1
    batch.start(script().script, None)
    attempts.start(batch)
    assert attempts.batch_of(members[0].msg_id) is batch
    for attempt in batch:
        batch.finish_message(attempt)
        attempt.end()
        batch.count_end(Event.FINISH)
        attempts.forget(attempt)
    assert (attempts.slots_used, batch.left, attempts.started) == (1, 0, 0)
    assert attempts.batch_of(members[0].msg_id) is None
    assert attempts.batch_with(members[0].msg_id) is batch
    attempts.forget_batch(batch)
    assert attempts.none_left


def test_who_holds_the_slot_of_a_message_is_told():
    attempts, attempt = Attempts(), claimed()
    attempts.left["20260102.0304.05.006.1"] = "an old process"
    attempts.claim(attempt)
    attempts.start([attempt])
    attempts.holders[attempt.slot.number] = "a child"
    assert attempts.holder_of(attempt.msg_id) == "a child"
    assert attempts.kept_in_run() == {
        "20260102.0304.05.006.1": "an old process",
        attempt.msg_id: "a child",
    }
