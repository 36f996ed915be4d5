"""Many parked queues looked at together: what that costs, and that no change is missed."""

import os
from dataclasses import replace

import pytest
from harness import left_parked
from harness.left_parked import leave, left
from harness.steps import calls, steps

from rq.cli import owner, status
from rq.config import parked
from rq.config.crowd import Crowd
from rq.config.parked import LOOKED_AT
from rq.proc import locks
from rq.rpc.lines import parked_answers
from rq.scandir.cache import look
from rq.scandir.passes import Scandir

MANY = 40
LOOKS = len(LOOKED_AT) + 1  # and what it has left


@pytest.fixture
def root(tmp_path):
    return left_parked.make_root(tmp_path / "root")


def make(root, number):
    every = [f"q{each}" for each in range(number)]
    for name in every:
        leave(root, name)
    return every


# ---- what it costs


def test_what_they_have_left_is_read_once(root):
    names, crowd = make(root, MANY), Crowd(root)
    first = calls(lambda: crowd.answers(names, "detail"))
    again = calls(lambda: crowd.answers(names, "detail"))
    assert (first["read"], again["read"]) == (
        2 * MANY,
        0,
    )  # `parked.read`, and a file's
    assert (first["scandir"], again["scandir"]) == (MANY, 0)
    assert again["loads"] == 0
    assert again["stat"] == LOOKS * MANY
    assert again["listdir"] == 1


def test_twice_as_many_cost_twice_as_much(root):
    names, crowd = make(root, 2 * MANY), Crowd(root)
    crowd.answers(names, "detail")
    half = steps(lambda: crowd.answers(names[:MANY], "detail"))
    assert steps(lambda: crowd.answers(names, "detail")) < 2.1 * half


def test_what_is_equal_in_their_answers_is_kept_once(root):
    names = make(root, MANY)
    answers = Crowd(root).answers(names, "detail")
    assert len({id(answers[name][1]["series"]) for name in names}) == 1
    assert {answers[name][1]["name"] for name in names} == {*names}


def test_a_verb_that_shows_all_lists_the_queues_no_more_than_once(root):
    names = make(root, MANY)
    lock = locks.lock(root.supervisor_lock)
    with os.fdopen(lock), owner.Reader(root) as reader:
        rows = []
        count = calls(lambda: rows.extend(status.queue_rows(reader, names)))
    assert [row.name for row in rows] == names
    assert all(row.detail for row in rows)
    assert count["listdir"] == 1
    assert count["scandir"] == MANY  # of each its new/
    assert count["is_locked"] == 1


# ---- that no change is missed


def answered(crowd):
    return [*crowd.answers(["q"], "detail")]


@pytest.fixture
def crowd(root):
    """One that has looked at a queue before."""
    leave(root, "q")
    crowd = Crowd(root)
    assert answered(crowd) == ["q"]
    return crowd


@pytest.mark.parametrize("name", [each for each in LOOKED_AT if "." not in each])
def test_what_comes_to_any_of_its_directories_is_seen(root, crowd, name):
    (root.queue("q").path / name / "x").mkdir()
    assert answered(crowd) == []
    assert not parked.is_current(root, "q")


def test_another_config_is_seen(root, crowd):
    root.queue("q").config.write_text("{}")
    assert answered(crowd) == []


@pytest.mark.parametrize("suffix", ["down", "pause"])
def test_what_a_person_wants_is_seen_and_asked_for(root, crowd, suffix):
    file = root.config_dir / f"q.{suffix}"
    file.touch()
    assert answered(crowd) == []
    file.unlink()
    assert answered(crowd) == ["q"]


def test_one_that_was_woken_is_not_answered_for(root, crowd):
    parked.forget(root.queue("q"))
    assert answered(crowd) == []


def test_one_that_was_parked_again_answers_otherwise(root, crowd):
    detail = left_parked.detail("q", rows=7)
    again = left(root, "q", answers={"detail": ["ok", detail]})
    parked.write(root.queue("q"), again)
    assert crowd.answers(["q"], "detail")["q"][1]["rows"] == 7


def test_one_whose_time_is_over_is_not_answered_for(root, crowd):
    parked.write(root.queue("q"), replace(left(root, "q"), wakes_at=1.0))
    assert answered(crowd) == []


def test_what_came_before_the_queue_looked_is_seen_though_nothing_changes(root):
    leave(root, "q")
    (root.queue("q").path / "new" / "x").mkdir()
    parked.write(root.queue("q"), left(root, "q"))
    crowd = Crowd(root)
    assert answered(crowd) == answered(crowd) == []


def test_what_may_come_within_the_same_tick_is_looked_for(root):
    leave(root, "q")
    os.utime(root.queue("q").path / "new")
    parked.write(root.queue("q"), left(root, "q"))
    crowd = Crowd(root)
    assert answered(crowd) == ["q"]
    assert calls(lambda: crowd.answers(["q"], "detail"))["scandir"] == 1


def test_a_queue_of_another_version_is_asked(root):
    leave(root, "q", version="0")
    assert answered(Crowd(root)) == []


def test_an_answer_that_it_did_not_leave_is_asked_for(root, crowd):
    assert crowd.answers(["q"], "uptime") == {}
    assert crowd.current(["q", "r"]) == ["q"]


@pytest.mark.parametrize("year", [1600, 2300])
def test_a_file_of_another_age_is_looked_at_as_any_other(root, year):
    leave(root, "q")
    dated = (
        year - 1970
    ) * 31_556_952  # in nanoseconds no number of 64 bits with a sign
    os.utime(root.queue("q").config, (dated, dated))
    assert look(str(root.queue("q").config)) is not None
    parked.write(root.queue("q"), left(root, "q"))
    assert answered(Crowd(root)) == ["q"]


@pytest.mark.parametrize("stamp", [7, ["a", 1, 2, 3], [1, 2], [1, 2, 3, 4, 5]])
def test_one_that_has_left_no_stamp_is_asked_alone(root, stamp):
    for name in ("p", "q"):
        leave(root, name)
    stamps = {**parked.stamps(root, "p"), "que": stamp}
    parked.write(root.queue("p"), left(root, "p", stamps=stamps))
    assert [*Crowd(root).answers(["p", "q"], "detail")] == ["q"]


class Woken(dict):
    """A question during which a queue is woken."""

    def __init__(self, queue, **arg):
        super().__init__(arg)
        self.queue = queue

    def get(self, key, default=None):
        parked.forget(self.queue)
        return super().get(key, default)


def test_a_queue_that_is_woken_while_its_folders_are_read_is_asked(root, crowd):
    arg = {"msg_id": "20260102.0304.05.006.7"}
    command, queue = "get_message_state", root.queue("q")
    assert [*parked_answers.of_many(root, crowd, ["q"], command, arg)] == ["q"]
    assert (
        parked_answers.of_many(root, crowd, ["q"], command, Woken(queue, **arg)) == {}
    )


def test_more_queues_than_are_kept_are_looked_at_all_the_same(root, monkeypatch):
    monkeypatch.setattr("rq.config.crowd._MOST", 2)
    names, crowd = make(root, 5), Crowd(root)
    for _ in range(2):
        assert [*crowd.answers(names, "detail")] == names


# ---- that each can be reached


def test_one_whose_socket_was_removed_is_woken_and_binds_another(root):
    leave(root, "q")
    root.queue("q").socket.touch()
    root.scandir.mkdir()
    scandir = Scandir(root)
    scandir.say_hints("there are none")
    assert calls(lambda: scandir.look(0.0))["_ask"] == 0
    root.queue("q").socket.unlink()
    assert calls(lambda: scandir.look(1.0))["_ask"] == 1
