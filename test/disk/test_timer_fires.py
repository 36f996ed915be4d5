"""The file of what became of each fire."""

import errno
from dataclasses import replace

import pytest
from harness.limits import no_descriptors

from rq.errors import CannotRead
from rq.files import durable
from rq.layout import Root
from rq.timers import fires, rows
from rq.timers.fires import KEPT_DAYS, MOST_ROWS, Fires
from rq.timers.missed import Span, Why
from rq.timers.past import Fire, Past
from rq.timers.rows import Fired, Missed, Outcome

NOW = 1_800_000_000.0
DOWN = (Why.DOWN, "")
DONE = Outcome(state="done", cause="done", text="fine", ended=NOW + 5)


@pytest.fixture
def root(tmp_path):
    root = Root(tmp_path)
    root.config_dir.mkdir()
    return root


def send(held, at, timer="t"):
    held.fired(timer, at, at, at, "sent", f"http://h/q/q/{at}")


def lines(root):
    return list(fires.read(root.timers_fires))


def kept(root, timer="t"):
    return rows.rows_of(lines(root), timer)


def test_what_was_noted_is_there_after_a_restart_and_numbers_go_on(root):
    held = Fires(root, {})
    send(held, NOW)
    held.missed("t", Span(NOW + 60, NOW + 180, 3), DOWN, NOW + 200)
    held.flush(NOW)
    held.ended(held.of("t").last_fire(), DONE)
    held.flush(NOW)
    again = Fires(root, {})
    assert again.of("t").rows == held.of("t").rows
    assert (again.newest, again.of("t").success.outcome) == (3, DONE)
    send(again, NOW + 240)
    again.flush(NOW)
    assert [line["n"] for line in lines(root)] == [1, 2, 3, 4]


def test_a_fire_that_is_noted_again_after_a_crash_is_one_row(root):
    held = Fires(root, {})
    send(held, NOW)
    held.flush(NOW)
    again = Fires(root, {})
    send(again, NOW)
    again.flush(NOW)
    assert len(lines(root)) == 1


def test_misses_one_after_the_other_are_one_row_until_something_else_comes(root):
    held = Fires(root, {})
    held.missed("t", Span(1.0, 2.0, 2), DOWN, NOW)
    held.missed("t", Span(3.0, 3.0, 1), DOWN, NOW + 1)
    held.missed("t", Span(4.0, 4.0, 1), (Why.PAUSED, ""), NOW + 2)
    send(held, 5.0)
    held.missed("t", Span(6.0, 9.0, 9, more=True), DOWN, NOW + 3)
    held.missed("t", None, DOWN, NOW + 3)
    held.flush(NOW)
    spans = [(r.span, r.why) for r in kept(root) if isinstance(r, Missed)]
    assert spans == [
        (Span(1.0, 3.0, 3), "down"),
        (Span(4.0, 4.0, 1), "paused"),
        (Span(6.0, 9.0, 9, more=True), "down"),
    ]
    assert held.of("t").missed == 13


def test_a_line_that_was_cut_is_dropped_and_the_next_stands_behind_whole_ones(root):
    held = Fires(root, {})
    for at in range(3):
        send(held, NOW + at)
    held.flush(NOW)
    data = root.timers_fires.read_bytes()
    root.timers_fires.write_bytes(data[:-7])
    again = Fires(root, {})
    assert [row.nominal for row in again.of("t").rows.values()] == [NOW, NOW + 1]
    send(again, NOW + 9)
    again.flush(NOW)
    assert [row.nominal for row in kept(root)] == [NOW, NOW + 1, NOW + 9]


def test_a_damaged_line_costs_itself_alone(root, caplog):
    held = Fires(root, {})
    for at in range(3):
        send(held, NOW + at)
    held.flush(NOW)
    first, one, *rest = root.timers_fires.read_bytes().splitlines(keepends=True)
    damaged = one.replace(b'"t"', b'"u"')
    root.timers_fires.write_bytes(b"".join((first, damaged, *rest)))
    again = Fires(root, {})
    assert [row.nominal for row in again.of("t").rows.values()] == [NOW + 1, NOW + 2]
    assert "damaged lines are left out: 1" in caplog.text
    assert again.newest == 3


def test_lines_of_a_write_that_failed_wait_and_are_written_once(root, monkeypatch):
    held = Fires(root, {})
    send(held, NOW)
    held.flush(NOW)
    send(held, NOW + 1)
    whole = durable.sync_data

    def full(fd):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(durable, "sync_data", full)
        with pytest.raises(OSError, match="no space"):
            held.flush(NOW)
    assert durable.sync_data is whole
    send(held, NOW + 2)
    held.flush(NOW)
    assert [row.nominal for row in kept(root)] == [NOW, NOW + 1, NOW + 2]
    assert [line["n"] for line in lines(root)] == [1, 2, 3]


def test_a_file_that_was_removed_is_begun_anew_behind_the_numbers_given(root):
    held = Fires(root, {})
    send(held, NOW)
    held.flush(NOW)
    root.timers_fires.unlink()
    send(held, NOW + 1)
    with pytest.raises(OSError, match="No such file"):
        held.flush(NOW)
    held.flush(NOW)
    assert [line["n"] for line in lines(root)] == [2]


def test_rows_of_more_than_13_months_go_and_the_last_success_stays(root):
    held = Fires(root, {})
    send(held, NOW)
    held.ended(held.of("t").last_fire(), DONE)
    send(held, NOW + 1)
    held.flush(NOW)
    later = NOW + (KEPT_DAYS + 1) * 86400
    send(held, later)
    held.flush(later)
    assert [row.nominal for row in kept(root)] == [NOW, later]
    assert kept(root)[0].outcome == DONE
    again = Fires(root, {})
    assert again.of("t").success.nominal == NOW
    assert again.newest == 4


def test_of_a_timer_that_fires_often_the_newest_rows_are_kept(root):
    held = Fires(root, {})
    for at in range(MOST_ROWS + 50):
        send(held, NOW + at)
        held.ended(held.of("t").last_fire(), Outcome(state="err"))
    send(held, NOW, "other")
    held.flush(NOW)
    assert len(held.of("t").rows) == 100
    held.flush(NOW + 90000)
    send(held, NOW + 90000, "other")
    held.flush(NOW + 90000)
    assert len(kept(root)) == MOST_ROWS
    assert kept(root)[-1].nominal == NOW + MOST_ROWS + 49
    assert len(kept(root, "other")) == 2


def test_a_timer_that_comes_again_has_nothing_of_the_one_that_was_removed(root):
    held = Fires(root, {})
    send(held, NOW)
    held.ended(held.of("t").last_fire(), DONE)
    row = held.of("t").last_fire()
    held.removed("t")
    held.ended(row, replace(DONE, state="gone"))  # an answer that comes late
    held.flush(NOW)
    again = Fires(root, {})
    assert (again.of("t").rows, again.of("t").success) == ({}, None)
    assert kept(root) == []


def test_an_update_takes_over_the_fires_that_were_kept(root):
    fire = Fire(NOW, NOW, "sent", "http://h/q/q/1", "done")
    left_out = Fire(NOW + 1, NOW + 1, "skipped: 1 has not ended")
    Fires(root, {"t": Past(fires=(fire, left_out))}).flush(NOW)
    [row] = kept(root)
    assert isinstance(row, Fired)
    assert (row.msg, row.outcome.state) == ("http://h/q/q/1", "done")
    assert len(Fires(root, {"t": Past(fires=(fire,) * 2)}).of("t").rows) == 1


def test_fires_that_cannot_be_read_now_are_not_written_over(root):
    held = Fires(root, {})
    send(held, NOW)
    held.flush(NOW)
    with no_descriptors(), pytest.raises(CannotRead, match="Too many open files"):
        Fires(root, {})
