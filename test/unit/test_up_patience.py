"""`rq up` waits for hundreds of queues as long as they go on becoming ready."""

from rq.cli import place, readiness
from rq.cli.readiness import READY_PATIENCE, Patience
from rq.layout import Root


def test_it_lasts_while_one_after_another_becomes_ready():
    patience = Patience(0.0)
    now = 0.0
    for missing in range(300, 0, -1):
        now += READY_PATIENCE
        assert not patience.ends(missing, now, READY_PATIENCE)


def test_it_ends_when_no_more_become_ready():
    patience = Patience(0.0)
    assert not patience.ends(3, 1.0, READY_PATIENCE)
    assert not patience.ends(3, 1.0 + READY_PATIENCE, READY_PATIENCE)
    assert patience.ends(3, 1.1 + READY_PATIENCE, READY_PATIENCE)


def test_a_queue_that_starts_and_fails_in_turn_does_not_prolong_it():
    patience = Patience(0.0)
    told = [patience.ends(2 + n % 2, float(n), READY_PATIENCE) for n in range(40)]
    assert told == [False] * 31 + [True] * 9


def test_a_queue_that_was_given_up_is_not_called_ready(tmp_path, monkeypatch, capsys):
    kind = {"kind": "queue", "wanted": "UP"}
    children = [
        {"name": "a", "state": "FATAL", "reason": "its journal", **kind},
        {"name": "b", "state": "UP", **kind},
    ]
    monkeypatch.setattr(place, "ask_supervisor", lambda *_: {"children": children})
    monkeypatch.setattr(place, "queue_names", lambda _: ["a", "b"])
    assert readiness.await_ready(Root(tmp_path))
    said = capsys.readouterr()
    assert said.out == "1 queue is ready: b\n"
    assert "a is FATAL: its journal" in said.err
