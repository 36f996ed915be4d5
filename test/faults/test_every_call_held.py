"""Every call fails once while messages are held and released, while a queue counts what it
tells people, and while scripts of another user get their tokens."""

import pytest
from harness.failing_calls import Story, each_may_fail, run
from harness.users import NOBODY, open_root
from harness.waiting import wait_until

pytestmark = pytest.mark.process

LATER = 4e9
TOKEN = """#!/bin/sh
[ -n "$RQ_TOKEN" ] || { echo "err no token" >&3; exit 0; }
echo "done fine" >&3
"""


def holds(life):
    """Who is told that a message is held finds it held, and so for a release."""
    given = [life.submit(due=LATER) for _ in range(3)]
    is_held = {life.submit(due=LATER, hold="from the start"): True}
    for word, ids in (("hold", given), ("release", given[:2])):
        for msg_id in filter(None, ids):
            answer = life.ask(f"{word}_message", msg_id=msg_id, who="ann")
            is_held[msg_id] = None if answer is None else word == "hold"
            life.rest()
    life.ask("seal")
    for msg_id, held in is_held.items():
        if msg_id is not None and held is not None:  # else nobody knows
            life.later.append(lambda of=(msg_id, held): stands(life, *of))


def stands(life, msg_id, held):
    message = life.queue.ok("get_message", {"msg_id": msg_id})
    assert message["state"] == "que"
    assert bool(message.get("held")) is held


def tells(life):
    """Each message in err was told, or is counted; none twice."""
    for _ in range(4):
        life.submit(param1="fail")
        life.rest()
    life.ask("seal")
    life.submit(param1="fail")
    life.rest()
    life.later.append(lambda: counted(life))


def counted(life):
    # One whose start has failed may be tried again between two looks.
    wait_until(lambda: _all_is_told(life))


def _all_is_told(life):
    [row] = life.queue.ok("notices")["tells"]
    detail = life.queue.ok("detail")
    failed = detail["counts"]["err"]
    is_counted = row["more"] + (row["last"] is not None) == failed
    return is_counted and detail["owed"] == min(1, failed)


def runs(life):
    """Each script has a token, whatever became of the one before; none is left."""
    given = [life.submit() for _ in range(3)]
    life.rest()
    life.later.append(lambda: all_done(life, list(filter(None, given))))


def all_done(life, given):
    life.end(given, "done")
    life.rest()
    assert list(life.queue.site.root.attempt_tokens.iterdir()) == []


@pytest.mark.parametrize(
    ("tell", "settings"),
    [(holds, {}), (tells, {"on_err": {"queue": "alarm", "every": 60}})],
)
def test_each_call_may_fail_once(library, tmp_path, tell, settings):
    story = Story(tell, settings=settings)
    calls = run(story, tmp_path / "count" / "root", library, 0, 0)
    assert len(calls) > 30
    wrong = each_may_fail(story, calls, tmp_path, library)
    assert not wrong, "\n".join(wrong)


def test_each_call_on_a_token_may_fail_once(library):
    story = Story(runs, TOKEN, {"user": NOBODY}, at="config/attempts")
    with open_root() as top:
        calls = run(story, top / "count", library, 0, 0)
        assert len(calls) > 5
        wrong = each_may_fail(story, calls, top, library)
    assert not wrong, "\n".join(wrong)
