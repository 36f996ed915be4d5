"""The messages that wait for others: who is asked when, and what follows from the answers."""

import itertools
import random
from functools import partial

import pytest

from rq.config.settings import RootConfig
from rq.errors import BadMessage
from rq.message.after import (
    Fail,
    Rule,
    Standing,
    Tally,
    Verdict,
    Wait,
    stored,
    verdict,
    wait_in,
)
from rq.outbound import peers
from rq.queues.schedule.predecessors import Predecessors
from rq.queues.schedule.rounds import AT_ONCE, Round, Rounds

A, B, C = (f"q/20260102.0304.05.006.{n}" for n in (1, 2, 3))
DONE, FAILED = str(Standing.DONE), str(Standing.FAILED)


def tally(*standings):
    counted = Tally()
    for standing in standings:
        counted.add(Standing(standing))
    return counted


def hear(waits, place, said, now=0.0):
    """Take what was said, as an owner does."""
    before = waits._standings.get(place)
    for row in waits.news([(place, said)]):
        waits._standings.update([row])
        waits.hear(place, before, now)


# ---- the rule


@pytest.mark.parametrize(
    ("rule", "standings", "expected"),
    [
        ("done", ["done", "relayed"], Verdict.RUN),
        ("done", ["done", "waiting"], Verdict.WAIT),
        ("done", ["waiting", "failed"], Verdict.ERR),
        ("done", ["waiting", "deleted"], Verdict.ERR),
        ("done", ["waiting", "not_run"], Verdict.WAIT),
        ("done", ["done", "not_run"], Verdict.CANCEL),
        ("done", ["not_needed", "not_run"], Verdict.CANCEL),
        ("done", ["not_needed", "done"], Verdict.NOT_NEEDED),
        ("done", ["unknown"], Verdict.WAIT),
        ("done", ["goes_on"], Verdict.WAIT),
        ("ended", ["failed", "waiting"], Verdict.WAIT),
        ("ended", ["failed", "deleted", "not_run", "not_needed", "done"], Verdict.RUN),
        ("ended", ["unknown"], Verdict.WAIT),
        ("failed", ["failed", "waiting"], Verdict.WAIT),
        ("failed", ["failed", "done"], Verdict.RUN),
        ("failed", ["deleted"], Verdict.RUN),
        ("failed", ["done", "not_run", "not_needed"], Verdict.NOT_NEEDED),
    ],
)
def test_the_rule(rule, standings, expected):
    wait = Wait((A,), Rule(rule), Fail.ERR)
    assert verdict(wait, tally(*standings)) is expected


def test_in_which_order_it_was_heard_makes_no_difference():
    for standings in itertools.product(map(str, Standing), repeat=3):
        for rule, fail in itertools.product(Rule, Fail):
            ways = set()
            for order in itertools.permutations(range(3)):
                waits = Predecessors({})
                waits.add("w", Wait((A, B, C), rule, fail), 0.0)
                ended = None
                for at in order:
                    hear(waits, (A, B, C)[at], standings[at])
                    while ended is None and waits.next() is None:
                        for place in list(waits._waiters["w"].doubtful or ()):
                            waits.confirm(place)
                        if not waits.is_ready:
                            break
                    ended = ended or (waits.next() or (None, None))[1]
                ways.add(ended)
            assert len(ways) == 1, (standings, rule, fail, ways)


# ---- names


def test_names_are_kept_in_one_form_each_once():
    ids = ["20260102.0304.05.006.1", A, f"http://h:1/q/{A}", f"q/{A}", f"/q/{A}"]
    assert stored(ids, "q", lambda url: url == "http://h:1") == (A,)
    assert stored(f"{A}, {B}", "q") == (A, B)
    for wrong in (["x"], [3], 3, {"a": 1}, ["q"], ["../x/20260102.0304.05.006.1"]):
        with pytest.raises(BadMessage):
            stored(wrong, "q")
    with pytest.raises(BadMessage, match="10001"):
        stored([f"q/20260102.0304.05.006.{n}" for n in range(10_001)], "q")


def test_the_same_id_of_another_root_is_another_message():
    own = RootConfig(env="x", host="h.example", port=1, relative_root="/rq/")
    is_here = partial(peers.is_here, own=own)
    for root in (
        "http://h.example:1/rq",
        "http://H.example:1/rq",
        "http://127.0.0.1:1/rq",
    ):
        assert stored([f"{root}/q/{A}"], "q", is_here) == (A,)
    for root in (
        *("http://h.example:1", "http://h.example:2/rq", "http://other:1/rq", "other"),
        *("http:/", "/rq", "other:1/rq", "//other", "http://h.example:1@other:1/rq"),
    ):
        with pytest.raises(BadMessage, match=r"there is no message .*of this root"):
            stored([f"{root}/q/{A}"], "q", is_here)


def test_what_a_file_says_that_makes_no_sense_waits_for_none():
    assert wait_in({"after": 3}) is None
    assert wait_in({"after": [A], "after_rule": "x"}) is None
    assert wait_in({"after": [A], "after_end": {"end": "run"}}) is None
    assert wait_in({"after": [A]}) == Wait((A,))


# ---- waiting


def test_it_is_asked_once_more_before_a_failure_decides():
    waits = Predecessors({})
    waits.add("w", Wait((A,), Rule.DONE, Fail.ERR), 0.0)
    assert waits.rounds.of("q").take(0.0) == [A]
    waits.rounds.of("q").answered(0.0)
    hear(waits, A, FAILED)
    assert waits.next() is None
    assert waits.rounds.due(1.0) == ["q"]  # before the next round
    hear(waits, A, str(Standing.WAITING))  # a retry was faster
    assert waits.next() is None
    hear(waits, A, FAILED)
    assert waits.next() is None
    waits.confirm(A)
    assert waits.next() == ("w", Verdict.ERR)


def test_a_predecessor_is_kept_once_and_no_longer_than_it_is_waited_for():
    standings = {}
    waits = Predecessors(standings)
    for name in ("v", "w"):
        waits.add(name, Wait((A, B)), 0.0)
    assert (len(waits.rounds), waits.edges) == (2, 4)
    hear(waits, A, DONE)
    assert standings == {A: DONE}
    assert len(waits.rounds) == 1
    waits.remove("v")
    assert standings == {A: DONE}
    waits.remove("w")
    assert (standings, len(waits), waits.edges, len(waits.rounds)) == ({}, 0, 0, 0)
    assert waits.news([(A, DONE)]) == []


def test_where_one_goes_on_is_asked_and_hinted_by_that_name():
    waits = Predecessors({})
    moved = "other/20260102.0304.05.006.9"
    waits.add("w", Wait((A,)), 0.0)
    hear(waits, A, f"goes_on {moved}")
    assert waits.asked_as(A) == moved
    assert waits.rounds.due(0.0) == ["other"]
    assert waits.rounds.of("other").take(0.0) == [A]
    assert waits.asked_by(moved) == [moved, A]
    hear(waits, A, f"done {moved}")
    assert waits.next() == ("w", Verdict.RUN)


# ---- rounds


def test_each_is_asked_again_and_less_often():
    there, now, begins = Round(), 0.0, []
    there.add(A, now, hurry=True)
    for _ in range(9):
        now = there.begins()
        begins.append(now)
        assert there.take(now) == [A]
        assert there.begins() is None
        there.answered(now)
    pauses = [after - before for before, after in itertools.pairwise(begins)]
    assert pauses == [1, 1, 2, 4, 8, 16, 32, 60]


def test_no_more_than_so_many_are_asked_a_second():
    there = Round()
    for number in range(2500):
        there.add(f"q/{number}", 0.0, hurry=True)
    sizes, now = [], 0.0
    for _ in range(3):
        now = there.begins()
        sizes.append((now, len(there.take(now))))
        there.answered(now)
    assert sizes == [(0.0, AT_ONCE), (1.0, AT_ONCE), (2.0, 500)]


def test_an_answer_to_an_earlier_question_confirms_nothing():
    there = Round()
    there.add(A, 0.0, hurry=True)
    there.take(0.0)
    there.hurry(A)
    assert there.answered(0.1) == {A}
    assert there.begins() < 1.0
    there.take(0.2)
    assert there.answered(0.2) == frozenset()


def test_a_queue_that_does_not_answer_is_asked_again():
    there = Round()
    there.add(A, 0.0, hurry=True)
    there.take(0.0)
    there.failed(5.0)
    assert (there.silent_since, there.begins()) == (5.0, 6.0)
    assert there.take(6.0) == [A]
    there.failed(6.0)
    assert (there.silent_since, there.begins()) == (5.0, 8.0)
    there.take(8.0)
    there.answered(8.0)
    assert there.silent_since is None


@pytest.mark.parametrize("rule", Rule)
def test_nothing_of_a_flow_runs_before_its_gate_has_ended(rule):
    gate = "flow/20260102.0304.05.006.7"
    wait, counted = Wait((gate,), rule), Tally()
    counted.add(Standing.WAITING, place=gate)
    assert verdict(wait, counted) is Verdict.WAIT
    counted.add(Standing.WAITING, -1, gate)
    counted.add(Standing.FAILED, place=gate)
    assert verdict(wait, counted) is Verdict.DISCARD


def test_a_queue_that_is_down_for_long_is_asked_each_minute_and_then_for_all():
    there, now, asked_at = Round(), 0.0, []
    for place in (A, B):
        there.add(place, now, hurry=True)
    while now < 3600:
        asked_at.append(now)
        assert set(there.take(now)) == {A, B}
        there.failed(now)
        now = there.begins()
    pauses = [b - a for a, b in itertools.pairwise(asked_at)]
    assert (pauses[0], max(pauses)) == (1.0, 60.0)
    assert there.silent_since == 0.0
    assert set(there.take(now)) == {A, B}
    there.answered(now)
    there.hurry(A)  # it is there again: nothing is left of the pauses
    assert there.begins() <= now + 1.0


@pytest.mark.parametrize("hurry", [True, False])
def test_a_clock_that_is_put_back_keeps_nobody_waiting(hurry):
    rounds = Rounds()
    rounds.of("q").add(A, 10_000.0, hurry=True)
    assert rounds.due(10_000.0) == ["q"]
    assert rounds.of("q").take(10_000.0) == [A]
    rounds.of("q").answered(10_000.0)
    if hurry:
        rounds.hurry("q", [A])
    assert rounds.due(10_000.0 - 3600) == []
    assert rounds.next_look() <= 10_000.0 - 3600 + 1.0
    assert rounds.due(10_000.0 - 3600 + 1.0) == ["q"]


# ---- who waits for whom, whatever happens


PLACES = [f"{queue}/20260102.0304.05.006.{n}" for queue in "qr" for n in range(1, 5)]
WORDS = [
    *("waiting", "done", "failed", "deleted", "unknown", "not_run"),
    *(f"goes_on {place}" for place in (PLACES[3], PLACES[7])),
]


def asked(waits):
    """Return which predecessors are asked for, by the queue that is asked."""
    rounds = waits.rounds._of
    return {(queue, place) for queue, there in rounds.items() for place in there._open}


@pytest.mark.parametrize("seed", range(40))
def test_each_predecessor_is_asked_for_where_it_is_and_knows_who_waits(seed):
    chance, waits, model = random.Random(seed), Predecessors({}), {}
    for number in range(120):
        step = chance.choice(["add", "remove", "hear", "hear"])
        if step == "add":
            ids = tuple(chance.sample(PLACES, chance.randint(1, 4)))
            model[f"m{number}"] = ids
            waits.add(
                f"m{number}", Wait(ids, Rule.ENDED), 0.0, hurry=chance.random() < 0.5
            )
        elif step == "remove" and model:
            msg_id = chance.choice(list(model))
            waits.remove(msg_id)
            del model[msg_id]
        elif step == "hear":
            hear_one(waits, chance.choice(PLACES), chance.choice(WORDS))
        agrees(waits, model)


def hear_one(waits, place, word):
    """Hear of a predecessor as its owner tells it: what lasts is not asked any more, and
    what goes on is told under the name that it has there."""
    before, _, name = waits._standings.get(place, "waiting").partition(" ")
    if before in ("done", "deleted"):
        return
    if name and not word.startswith("goes_on"):
        word = f"{word} {name}"
    hear(waits, place, word)


def agrees(waits, model):
    wanted = set()
    for place in PLACES:
        who = {msg_id for msg_id, ids in model.items() if place in ids}
        assert set(waits._who(place)) == who
        said = waits._standings.get(place, "waiting")
        if who and said.partition(" ")[0] not in ("done", "deleted"):
            at = said.partition(" ")[2] or place
            wanted.add((at.partition("/")[0], place))
        assert who or place not in waits._standings
    assert asked(waits) == wanted
    for msg_id, ids in model.items():
        said = [waits._standings.get(place, "waiting") for place in ids]
        expected = tally(*(word.partition(" ")[0] for word in said))
        assert waits.tally(msg_id) == expected
