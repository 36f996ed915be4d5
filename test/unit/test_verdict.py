"""The one list of troubles: how bad each is, and that queues which share one are a line."""

import pytest
from harness import documents

from rq.kinds import Kind
from rq.replies import health, verdict
from rq.replies.verdict import ROWS, Fault, Level, Trouble

WELL = {
    "admin": "UP",
    "oper": "UP",
    "reason": None,
    "closed_reason": None,
    "closed_kind": None,
    "stalled": None,
    "stalled_by": None,
    "is_sample": False,
}
RUNS = {"children": []}


def queue(name="q", *, admin="UP", err=0, **facts):
    return health.Queue(
        name=name,
        admin=admin,
        wish="paused by ann" if admin == "PAUSE" else "",
        counts={"err": err},
        detail={**WELL, "admin": admin, **facts},
        child={},
    )


def of(*queues, is_running=True):
    return verdict.folded(health.of_all(RUNS, queues, is_running=is_running))


def level(*queues):
    return verdict.level(of(*queues))


def test_every_kind_of_trouble_has_a_row_and_says_what_to_do():
    assert set(ROWS) == set(Fault)
    for fault in Fault:
        trouble = Trouble(fault=fault, who="x", what="y", number=2, queue="q")
        assert trouble.todo, fault
        assert trouble.path.startswith("/"), fault
        assert "{" not in trouble.sentence + trouble.todo + trouble.path, fault


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, Level.OK),
        ({"closed_reason": "full", "closed_kind": str(Kind.NO_ROOM)}, Level.CRITICAL),
        ({"closed_reason": "EIO", "closed_kind": str(Kind.DISK_FAILED)}, Level.CRITICAL),
        ({"closed_reason": "restored", "closed_kind": str(Kind.CLOSED)}, Level.CRITICAL),
        ({"stalled": "so", "stalled_by": "start"}, Level.CRITICAL),
        ({"stalled": "so", "stalled_by": "workers"}, Level.CRITICAL),
        ({"stalled": "so", "stalled_by": "outside"}, Level.WARNING),
        ({"oper": "SCRIPTERROR", "reason": "no file"}, Level.CRITICAL),
        ({"err": 1}, Level.CRITICAL),
        ({"err": 1, "is_sample": True}, Level.OK),
        ({"admin": "PAUSE"}, Level.WARNING),
        ({"admin": "DOWN", "closed_reason": "full"}, Level.WARNING),
        ({"lag": 50_000}, Level.WARNING),
        ({"long_runs": [{"msg_id": "1", "ran": 7200.0, "times": 8.0}]}, Level.WARNING),
    ],
)  # fmt: skip
def test_how_bad_it_is(facts, expected):
    assert level(queue(**facts)) is expected


def test_what_a_person_wants_leaves_rq_well_and_is_in_the_list():
    (paused,) = of(queue(admin="PAUSE"))
    assert paused.sentence == "q is paused by ann"
    assert verdict.is_well([paused])
    assert not verdict.is_well(of(queue(err=1)))


def test_queues_that_share_a_trouble_are_one_line():
    full = {"closed_kind": str(Kind.NO_ROOM)}
    queues = [
        queue(
            f"q{number}", closed_reason=f"the disk is full: {number} MiB free", **full
        )
        for number in range(200)
    ]
    (line,) = of(*queues)
    assert line.sentence == (
        "200 queues (q0, q1, q2 and 197 more) accept no messages: the disk is full: 0 "
        "MiB free"
    )
    assert len(line.queues) == 200
    assert line.stops


def test_failures_of_many_queues_are_summed():
    (line,) = of(*(queue(f"q{number}", err=3) for number in range(5)))
    assert line.said == "have 15 messages that failed"
    assert (line.number, line.path) == (15, "/failures")
    assert line.todo.startswith("`rq failures` says by which causes")


def test_a_reason_that_names_its_queue_is_shared_and_another_reason_is_not():
    silent = [
        health.Queue(name=name, admin="UP", wish="", counts={}, detail=None, child={},
                     silence=f"log/queue-{name}.log may say why")
        for name in ("a", "b")
    ]  # fmt: skip
    (line,) = of(*silent)
    assert line.said == "do not answer"
    apart = of(queue("a", stuck="EIO"), queue("b", stuck="EACCES"))
    assert [line.queue for line in apart] == ["a", "b"]


def test_the_worst_comes_first():
    lines = of(queue("a", admin="PAUSE"), queue("b", lag=5000), queue("c", err=1))
    assert [line.level for line in lines] == [2, 1, 1]
    assert lines[0].queue == "c"


def test_without_a_supervisor_no_queue_is_missed():
    away = health.Queue(
        name="q", admin="UP", wish="", counts={"err": 1}, detail=None, child={}
    )
    lines = of(away, is_running=False)
    assert [line.fault for line in lines] == [Fault.NOT_RUNNING, Fault.FAILED]


def test_the_reference_tells_of_each_kind_and_how_bad_it_is():
    page = documents.REFERENCE / "command-line.md"
    rows = documents.rows(documents.section(page, "rq status"), "`fault`")
    told = {word: row[1] for row in rows for word in documents.WORD.findall(row[0])}
    assert told == {str(fault): row.level.name for fault, row in ROWS.items()}


def test_a_run_that_is_far_longer_than_others_says_how_long_and_how_to_look():
    run = {"msg_id": "20260102.0304.05.006.7", "ran": 7200.0, "times": 8.2}
    (line,) = of(queue(long_runs=[run]))
    assert line.sentence == (
        "q runs 20260102.0304.05.006.7 for long: 2 h, 8 × longer than its p95; `rq show "
        "20260102.0304.05.006.7` says whether it is silent"
    )
