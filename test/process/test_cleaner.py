"""The queue `cleaner` removes what ended days ago, with the ancestor's params."""

import os
import time

import pytest
from harness.checkout import CHECKOUT
from harness.queues import RunningQueue
from harness.waiting import wait_until

from rq.builtin import cleaner
from rq.errors import BadInput

pytestmark = pytest.mark.process

CLEANER = CHECKOUT / "rq/bundled/cleaner/run"
DAY = 86400.0


@pytest.fixture
def site(tmp_path):
    """Two queues with an old and a new message each, and a cleaner."""
    queues = [RunningQueue(tmp_path, name, "obey") for name in ("a", "b")]
    queues.append(RunningQueue(tmp_path, "cleaner", CLEANER, nice=0))
    try:
        for one in queues:
            one.start()
        yield queues
        for one in queues:
            one.close()
    finally:
        for one in queues:
            one.kill()


def old(queue, days, what="echo done >&3"):
    """Return a message that was made in 2020 and ended `days` ago, as its folder says."""
    door = queue.dir.path / "new" / f"2020{len(what):04}.0304.05.006.{int(days * 10)}"
    made = queue.root.path / "made"
    made.mkdir()
    (made / "msg").write_text(f'{{"dest": "x", "param1": "{what}"}}')
    made.rename(door)
    queue.ask("wake")
    asked = {"msg_id": door.name}  # which may not be known yet
    wait_until(lambda: queue.ask("get_message_state", asked)[1] in ("done", "err"))
    status = queue.folder(door.name) / "status"
    when = time.time() - days * DAY
    os.utime(status, (when, when))
    return door.name


def there(queue, msg_id):
    return queue.ask("get_message_state", {"msg_id": msg_id})[0] == "ok"


def test_it_cleans_all_queues_of_what_is_three_days_old(site):
    a, b, clean = site
    gone, kept = [old(a, 3.1), old(b, 4)], [old(a, 2.9), old(b, 0)]
    ended = clean.run()
    assert ended["status"] == "done - removed 2 messages of 3 queues"
    assert not there(a, gone[0])
    assert not there(b, gone[1])
    assert there(a, kept[0])
    assert there(b, kept[1])


def test_it_cleans_one_queue_of_what_is_as_old_as_asked(site):
    a, b, clean = site
    first, second, other = old(a, 29), old(a, 31), old(b, 31)
    assert clean.run(param1="a", param2="30")["state"] == "done"
    assert there(a, first)
    assert not there(a, second)
    assert there(b, other)


def test_all_queues_may_be_said_and_errors_stay_until_seen(site):
    a, _, clean = site
    failed = old(a, 9, "echo err >&3")
    clean.run(param1="ALLQUEUES", param2="0")
    assert there(a, failed)
    a.ok("ack_errs")
    clean.run(param1="ALLQUEUES", param2="0")
    assert not there(a, failed)


def test_a_queue_that_is_down_is_left_out_and_named(site):
    a, b, clean = site
    message = old(b, 9)
    a.root.down("a").touch()
    ended = clean.run()
    a.root.down("a").unlink()
    a.ask("wake")
    assert "of 2 queues; left out: a: status: DOWN" in ended["status"]
    assert not there(b, message)


def test_what_cannot_be_meant_is_an_error(site):
    for params, text in (
        ({"param1": "nobody"}, "there is no queue nobody"),
        ({"param1": "../a"}, "queue name has invalid characters"),
        ({"param2": "soon"}, "param2 is 'soon', not a number of days"),
        ({"param2": "-1"}, "not a number of days"),
    ):
        ended = site[2].run(**params)
        assert (ended["state"], text in ended["status"]) == ("err", True), params


def test_every_digit_of_the_days_counts():
    assert cleaner._days("30") == 30
    with pytest.raises(BadInput):
        cleaner._days("nan")
