"""The table of recovery: what the journal says, where the folder lies, what is done."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.spool.fold import Action, decide, fold
from rq.words.states import FINAL, HASHED, TRANSITIONS, Event, Note, State

ID = "20270115.0800.00.000.1"
DOOR = State.NOWHERE
MESSAGE = {"dest": "q", "due": 1.0}
PLACES = [None, DOOR, *(one for one in State if one not in (State.NOWHERE, State.GONE))]


def lines(*steps, msg_id=ID, first=1):
    """Return the journal of events from the state `steps` starts with."""
    state, records = steps[0], []
    for seq, event in enumerate(steps[1:], first):
        was, state = state, TRANSITIONS[state, event][0]
        record = {
            "ts": seq * 1_000_000,
            "seq": seq,
            "msg": msg_id,
            "ev": event,
            "was": was,
            "state": state,
            "count": 0,
            "attempt": 0,
        }
        if event is Event.COMMIT:
            record["message"] = MESSAGE
        if state is State.QUE:
            record["due"] = 1.0
        records.append(record)
    return records


def folded(*steps):
    return fold(lines(*steps)).by_id.get(ID)


NEW = (State.NOWHERE, Event.COMMIT)  # accepted after the checkpoint
QUE, RUN = (State.QUE,), (State.RUN,)  # accepted before it
ENDED = (*NEW, Event.CLAIM, Event.FINISH)

TABLE = [
    # que
    (NEW, None, Action.MAKE),
    (NEW, State.QUE, Action.SETTLE),
    (NEW, State.PREP, Action.SETTLE),
    (NEW, DOOR, Action.SETTLE),
    ((*QUE, Event.RESCHEDULE), None, Action.REPORT),
    # run, or que by commit; the folder in run
    ((*NEW, Event.CLAIM), State.RUN, Action.RECOVER),
    ((*QUE, Event.CLAIM), State.RUN, Action.RECOVER),
    (NEW, State.RUN, Action.RECOVER),
    ((*NEW, Event.RESCHEDULE), State.RUN, Action.RECOVER),
    # que by resend, recover, requeue; the folder in run: not counted again
    ((*RUN, Event.RETRY), State.RUN, Action.SETTLE),
    ((*RUN, Event.RECOVER), State.RUN, Action.SETTLE),
    ((*RUN, Event.REQUEUE), State.RUN, Action.SETTLE),
    ((*RUN, Event.RETRY, Event.RESCHEDULE), State.RUN, Action.SETTLE),
    ((*NEW, Event.CLAIM, Event.RETRY, Event.RESCHEDULE), State.RUN, Action.SETTLE),
    # run; the folder in que or nowhere
    ((*QUE, Event.CLAIM), State.QUE, Action.RECOVER),
    ((*NEW, Event.CLAIM), State.PREP, Action.RECOVER),
    ((*NEW, Event.CLAIM), DOOR, Action.RECOVER),
    ((*NEW, Event.CLAIM), None, Action.RECOVER),
    ((*QUE, Event.CLAIM), None, Action.REPORT),
    # ended
    ((*RUN, Event.FINISH), State.RUN, Action.SETTLE),
    ((*RUN, Event.FINISH), State.QUE, Action.SETTLE),
    (ENDED, State.PREP, Action.SETTLE),
    ((*RUN, Event.RELAY), State.RUN, Action.SETTLE),
    ((*RUN, Event.FAIL), State.RUN, Action.SETTLE),
    ((State.ERR, Event.DISMISS), State.ERR, Action.SETTLE),
    ((State.DISMISSED, Event.REOPEN), State.DISMISSED, Action.SETTLE),
    ((State.ERR, Event.DISMISS, Event.REOPEN), State.DISMISSED, Action.SETTLE),
    ((State.ERR, Event.MOVE), State.ERR, Action.SETTLE),
    ((State.DISMISSED, Event.MOVE), State.DISMISSED, Action.SETTLE),
    ((*QUE, Event.MOVE), State.QUE, Action.SETTLE),
    ((State.ERR, Event.REQUEUE, Event.MOVE), State.ERR, Action.SETTLE),
    ((State.NOWHERE, Event.FAIL), DOOR, Action.SETTLE),
    ((*RUN, Event.FINISH), State.DONE, Action.SETTLE),
    (ENDED, None, Action.MAKE),
    ((*RUN, Event.FINISH), None, Action.REPORT),
    ((State.ERR, Event.DISMISS), None, Action.REPORT),
    # gone
    *(((*QUE, Event.DISCARD), at, Action.SETTLE) for at in PLACES if at),
    ((*QUE, Event.DISCARD), None, Action.FORGET),
    (((*NEW, Event.DISCARD)), None, Action.FORGET),
    # no event after the checkpoint
    *((None, at, Action.KEEP) for at in PLACES if at not in (State.RUN, None)),
    (None, State.RUN, Action.RECOVER),
    # que or run; the folder in err
    ((State.ERR, Event.REQUEUE), State.ERR, Action.SETTLE),
    ((State.DISMISSED, Event.REQUEUE), State.DISMISSED, Action.SETTLE),
    ((State.ERR, Event.REQUEUE, Event.CLAIM), State.ERR, Action.RECOVER),
    (NEW, State.ERR, Action.OBSERVE),
    ((*QUE, Event.CLAIM), State.ERR, Action.OBSERVE),
    ((*QUE, Event.CLAIM), State.DISMISSED, Action.OBSERVE),
    # ended after it was sent round again; the folder has not left err
    ((State.ERR, Event.REQUEUE, Event.CLAIM, Event.FINISH), State.ERR, Action.SETTLE),
    ((State.DISMISSED, Event.REQUEUE, Event.FAIL), State.DISMISSED, Action.SETTLE),
    # que or run; the folder in done, relayed
    *(
        ((*NEW, *more), at, Action.OBSERVE)
        for more in ((), (Event.CLAIM,))
        for at in (State.DONE, State.RELAYED)
    ),
    # a hand has moved what had ended
    ((*RUN, Event.FINISH), State.ERR, Action.OBSERVE),
    ((*RUN, Event.FAIL), State.DISMISSED, Action.OBSERVE),
    ((*RUN, Event.FAIL), State.DONE, Action.OBSERVE),
]


@pytest.mark.parametrize(
    ("steps", "at", "action"),
    TABLE,
    ids=[f"{'+'.join(row[0] or ('nothing',))}@{row[1] or 'lost'}" for row in TABLE],
)
def test_a_row_of_the_table_of_recovery(steps, at, action):
    assert decide(folded(*steps) if steps else None, at) is action


def walks():
    """Return courses of events that the table of states allows, from any state."""

    @st.composite
    def walk(draw):
        state = draw(st.sampled_from([State.NOWHERE, *FINAL, State.QUE, State.RUN]))
        steps = [state]
        for _ in range(draw(st.integers(1, 8))):
            ways = [event for (one, event) in TRANSITIONS if one is steps_state(steps)]
            ways = [event for event in ways if event is not Event.PREPARE]
            if not ways:
                break
            steps.append(draw(st.sampled_from(sorted(ways))))
        return tuple(steps)

    return walk()


def steps_state(steps):
    state = steps[0]
    for event in steps[1:]:
        state = TRANSITIONS[state, event][0]
    return state


def recovered(steps, at, action):
    """Return (the journal, the place) after recovery has done `action`."""
    records = lines(*steps)
    if action is Action.RECOVER:
        more = lines(State.RUN, Event.RECOVER, first=len(records) + 1)
        return [*records, *more], State.QUE
    if action in (Action.OBSERVE, Action.REPORT):
        seen = {
            "ts": 1,
            "seq": len(records) + 1,
            "msg": ID,
            "ev": Event.OBSERVE,
            "was": steps_state(steps),
            "state": State.GONE if action is Action.REPORT else at,
        }
        return [*records, seen], at
    state = steps_state(steps)
    return records, None if state is State.GONE else state


@given(walks(), st.sampled_from(PLACES), st.booleans())
def test_recovery_of_a_recovery_changes_nothing(steps, at, settled):
    if len(steps) == 1:
        return
    action = decide(folded(*steps), at)
    records, place = recovered(steps, at, action)
    if not settled:
        place = at  # the second crash came before any folder was moved
    again = fold(records).by_id[ID]
    second = decide(again, place)
    assert second is not Action.RECOVER  # nothing is counted twice
    assert second is not Action.OBSERVE  # and nothing written down twice
    if action is not Action.REPORT:
        assert again.state is not State.GONE or steps_state(steps) is State.GONE


@given(walks(), st.sampled_from(PLACES))
def test_a_message_that_is_gone_is_never_made_again(steps, at):
    if len(steps) > 1 and steps_state(steps) is State.GONE:
        assert decide(folded(*steps), at) in (Action.SETTLE, Action.FORGET)


@given(walks())
def test_folding_tells_the_state_and_how_many_have_ended(steps):
    if len(steps) == 1:
        return
    found = fold(lines(*steps))
    state = steps_state(steps)
    assert found.by_id[ID].state is state
    for one in HASHED:
        assert found.deltas[one] == (state is one) - (steps[0] is one)


def test_a_line_speaks_for_its_riders_too():
    leader, *_ = lines(State.RUN, Event.FINISH)
    rider = "20270115.0800.00.000.2"
    commit = lines(*NEW, msg_id=rider)
    found = fold([*commit, {**leader, "riders": [rider], "rides": "http://h/leader"}])
    assert found.by_id[rider].state is State.DONE
    assert found.by_id[rider].record["dup"] == "http://h/leader"
    assert found.by_id[rider].message == MESSAGE
    assert found.deltas[State.DONE] == 2


def test_what_is_owed_is_folded_until_it_is_sent():
    finish, *_ = lines(State.RUN, Event.FINISH)
    finish["out"] = [{"dest": "a", "message": {}}, {"dest": "b", "message": {}}]
    sent = {"ev": Note.SENT, "of": 1, "i": 0, "seq": 2, "ts": 2}
    found = fold([finish, sent])
    assert [(seq, number) for seq, number, _, _ in found.owed] == [(1, 0), (1, 1)]
    assert found.sent == {(1, 0)}


@pytest.mark.parametrize(
    ("last", "stopped"), [(Note.STOPPED, True), (Note.SENT, False)]
)
def test_a_clean_end_is_the_last_line(last, stopped):
    note = {"ev": last, "of": 1, "i": 0, "seq": 2, "ts": 2}
    assert fold([*lines(*NEW), note]).stopped is stopped


def test_rescheduling_keeps_the_place_in_the_order():
    assert folded(*NEW, Event.RESCHEDULE).seq == 1
    assert folded(*NEW, Event.CLAIM, Event.RETRY).seq == 3


def test_every_state_and_place_is_decided():
    ways = [
        (*NEW,),
        (*NEW, Event.CLAIM),
        *((one, event) for one, event in TRANSITIONS if event is not Event.PREPARE),
    ]
    for steps, at in itertools.product(ways, PLACES):
        assert isinstance(decide(folded(*steps), at), Action)
