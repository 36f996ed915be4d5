"""`spark.read.format("rq")`: message folders and history as tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from harness import documents
from harness.documents import WORD
from harness.journal_files import DAY as JOURNAL_DAY
from harness.journal_files import START, JournalFiles, life
from harness.message_folders import (
    BEGAN,
    make_done,
    make_message,
    make_queue,
    plain_read,
)
from harness.spool import Owner

from rq.errors import BadInput
from rq.layout import Root, folder
from rq.words.states import State

source = pytest.importorskip("rq.spark.messages_source")

from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.types import _parse_datatype_string  # noqa: E402

from rq.spark import (  # noqa: E402
    folder_rows,
    folders_plan,
    history_reader,
    journal_plan,
    journal_source,
    lease_options,
    sink,
)
from rq.spark.folders_plan import Wanted  # noqa: E402

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Give a root with two queues and messages of three days in all states."""
    made = Root(tmp_path_factory.mktemp("folders"))
    make_queue(made, "a")
    make_queue(made, "b")
    make_done(made, "a", 60, 30)
    for day in range(1, 3):
        make_message(made, "a", State.DONE, 100 + day, BEGAN + day * DAY)
        make_message(made, "a", State.RELAYED, 200 + day, BEGAN + day * DAY)
    for number, state in enumerate(
        (State.PREP, State.QUE, State.RUN, State.ERR, State.DISMISSED)
    ):
        make_message(made, "b", state, 300 + number, BEGAN + number * DAY)
    return made


@pytest.fixture
def frame(spark, root):
    """Give the messages of the root, with options."""

    def load(**options):
        found = spark.read.format("rq").options(root=str(root.path), **options)
        return found.load()

    return load


@pytest.fixture(params=["true", "false"], ids=["pushing", "not pushing"])
def pushing(spark, request):
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.set(PUSHDOWN, "true")


def test_the_batches_match_what_spark_expects_exactly(spark):
    for text, arrow in (
        (folder_rows.SCHEMA, folder_rows.ARROW_SCHEMA),
        (journal_source.SCHEMA, journal_source.ARROW_SCHEMA),
        (history_reader.SCHEMA, history_reader.ARROW_SCHEMA),
    ):
        schema = _parse_datatype_string(text)
        assert to_arrow_schema(schema, timezone="UTC").equals(arrow)


def test_rows_equal_what_plain_python_reads(frame, root, pushing):
    rows = frame(queue="a", states="done").orderBy("msg_id").collect()
    wanted = plain_read(root.path, "a")
    assert len(rows) == len(wanted) == 62
    for row, plain in zip(rows, wanted, strict=True):
        when = datetime.fromtimestamp(plain["due"], UTC)
        same = ("msg_id", "dest", "count", "max_count", "param1", "orig_msg_id")
        assert [row[one] for one in same] == [plain[one] for one in same]
        same = ("cause", "outcome", "wait_us", "run_us")
        assert [row[one] for one in same] == [plain[one] for one in same]
        assert (row.queue, row.state, row.status) == ("a", "done", plain["job_status"])
        assert row.due.astimezone(UTC) == row.created.astimezone(UTC) == when
        assert row.date == when.date()
        assert row.param2 is row.attachments is row.extra is row.problem is None


def test_all_states_are_read_and_each_can_be_chosen(frame):
    found = {(row.queue, row.state): row[2] for row in
             frame().groupBy("queue", "state").count().collect()}  # fmt: skip
    assert found == {
        ("a", "done"): 62,
        ("a", "relayed"): 2,
        **{("b", one): 1 for one in ("prep", "que", "run", "err", "dismissed")},
    }
    assert frame(states="err, dismissed").count() == 2
    assert frame(queue="b").count() == 5


@pytest.mark.parametrize(
    ("condition", "number"),
    [
        ("queue = 'b'", 5),
        ("queue in ('b', 'c') and state in ('que', 'err')", 2),
        ("date = '2026-01-03'", 3),
        ("date in (date'2026-01-03', date'2026-01-04')", 6),
        ("date > '2026-01-02' and date <= '2026-01-04'", 6),
        ("date < '2026-01-03' and state = 'done'", 60),
        ("date >= '2026-01-05'", 2),
        ("state <> 'done'", 7),
        ("state = 'done' and param1 = 'p7'", 1),
        ("queue is null", 0),
        ("date between '2026-01-06' and '2026-01-03'", 0),
    ],
)
def test_filters_give_the_same_rows_with_and_without_pushdown(
    frame, spark, condition, number
):
    spark.conf.set(PUSHDOWN, "false")
    without = {row.msg_id for row in frame().where(condition).collect()}
    spark.conf.set(PUSHDOWN, "true")
    pushed = {row.msg_id for row in frame().where(condition).collect()}
    assert pushed == without
    assert len(pushed) == number


def listed(counts):
    lines = [json.loads(line) for line in counts.read_text().splitlines()]
    return [one for one in lines if "listed" in one][-1]


def test_filters_prune_directories_before_they_are_listed(frame, tmp_path, pushing):
    def asked(condition):
        counts = tmp_path / "counts"
        counts.unlink(missing_ok=True)
        frame(counts=str(counts)).where(condition).collect()
        return listed(counts)

    everything = asked("true")
    assert everything["leaves"] == 30 + 2 + 2 + 10
    if not pushing:
        assert asked("date = '2026-01-03'") == everything
        return
    day = asked("state = 'done' and date = '2026-01-03'")
    # queue/, done/ of two queues, then one date with its one hour.
    assert day == {"listed": 1 + 2 + 2, "leaves": 1}
    assert asked("queue = 'b'")["listed"] == 1 + 7
    assert asked("state = 'que'") == {"listed": 1 + 2, "leaves": 2}
    assert asked("queue = 'nobody'") == {"listed": 1, "leaves": 0}


def test_a_plan_counts_what_it_lists(root):
    assert folders_plan.plan(root, Wanted()).listed > 15
    wanted = Wanted(states=frozenset({"done"}), first="20260103", last="20260103")
    assert folders_plan.plan(root, wanted).listed == 5


def test_slices_of_a_large_directory_hold_each_message_once(root, monkeypatch):
    monkeypatch.setattr(folders_plan, "_LARGE", 0)
    wanted = Wanted(queues=frozenset({"b"}))
    found = folders_plan.plan(root, wanted, slices=3)
    assert len(found.leaves) == 5 * 3
    names = [name for leaf in found.leaves for name in leaf.names(wanted)]
    assert len(names) == len(set(names)) == 5


@pytest.fixture
def spoiled(tmp_path):
    """Give a root whose queue holds all that can be wrong, and one good message."""
    made = Root(tmp_path / "spoiled")
    make_queue(made, "q")
    make_message(made, "q", State.QUE, 1, BEGAN, param1={"deep": [1, 2]}, other="é")
    place = made.queue("q").path
    texts = [
        b"",
        b"{",
        b"[]",
        b'{"dest": 5}',
        b'{"dest": "q", "due": "never"}',
        b"\xff",
    ]
    for number, text in enumerate(texts, 10):
        make_message(made, "q", State.QUE, number, BEGAN)
        msg_id = f"{BEGAN:%Y%m%d.%H%M.%S}.000.{number}"
        (place / folder(State.QUE, msg_id) / "msg").write_bytes(text)
    for number in (30, 31):
        msg_id = make_message(made, "q", State.DONE, number, BEGAN)
        (place / folder(State.DONE, msg_id) / "msg").unlink()
    msg_id = make_message(made, "q", State.DONE, 40, BEGAN)
    status = {"job_status": 5, "wait_us": "x", "run_us": 2**70, "finished": "y"}
    (place / folder(State.DONE, msg_id) / "status").write_text(json.dumps(status))
    (place / "que" / "garbage").mkdir()
    (place / "que" / f"{BEGAN:%Y%m%d.%H%M.%S}.000.99").write_text("a file")
    (place / "done" / "lost+found").mkdir()
    return made


def test_what_is_half_moved_or_malformed_is_skipped_and_counted(
    spark, spoiled, tmp_path
):
    counts = tmp_path / "counts"
    found = spark.read.format("rq").options(root=str(spoiled.path), counts=str(counts))
    rows = {row.state: row for row in found.load().collect()}
    assert set(rows) == {"que", "done"}
    assert json.loads(rows["que"].param1) == {"deep": [1, 2]}
    assert json.loads(rows["que"].extra) == {"other": "é"}
    assert rows["done"].status is rows["done"].wait_us is rows["done"].run_us is None
    lines = [json.loads(line) for line in counts.read_text().splitlines()]
    tasks = [one for one in lines if "read" in one]
    assert sum(one["read"] for one in tasks) == 2
    assert sum(one["moved"] for one in tasks) == 2
    assert sum(one["malformed"] for one in tasks) == 7


def test_the_malformed_can_be_looked_at(spark, spoiled):
    found = spark.read.format("rq").options(root=str(spoiled.path), bad="keep").load()
    rows = found.where("problem is not null").collect()
    assert len(rows) == 7
    assert {row.state for row in rows} == {"que"}
    assert all(row.msg_id and row.date == date(2026, 1, 2) for row in rows)
    assert any("due is not epoch seconds" in row.problem for row in rows)


def test_the_sealed_events_of_all_queues_are_read_as_history(spark, tmp_path):
    owner = Owner(tmp_path)
    owner.open()
    ids = [owner.submit() for _ in range(3)]
    owner.stop()
    asked = {"root": str(tmp_path), "of": "history"}
    rows = spark.read.format("rq").options(**asked).load().orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    commits = [row for row in rows if row.ev == "commit"]
    assert [row.msg for row in commits] == ids
    assert json.loads(commits[0].message)["dest"] == "q"
    assert spark.read.format("rq").options(**asked, queue="x").load().count() == 0


@pytest.mark.parametrize(
    "options",
    [{"states": "ready"}, {"of": "x"}, {"status": "x"}, {"partitions": "x"}],
)
def test_a_wrong_option_is_refused_by_its_name(root, options):
    [name] = options
    with pytest.raises(BadInput, match=f"^{name}: "):
        source.parse_options({"root": str(root.path), **options})


def test_a_broken_module_of_a_stranger_does_not_hide_it(
    frame, spark, tmp_path, monkeypatch
):
    from rq.spark.session import register

    (tmp_path / "pyspark_x.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    register(spark)
    assert frame(states="que").count() == 1


def test_the_reference_tells_each_column_and_each_option():
    section = documents.section(documents.REFERENCE / "spark.md", "Tables of Spark")
    reading, columns, leasing, writing = (
        {word for row in table[2:] for word in WORD.findall(row[0])}
        for table in documents.tables(section)
    )
    assert columns == {name for name, _ in folder_rows.COLUMNS}
    assert reading == read_by(source) | {"root"}
    assert leasing == read_by(lease_options)
    assert writing == read_by(sink) | {"root"}


def read_by(module):
    """Return the options that a module asks for, by its text."""
    text = Path(module.__file__).read_text()
    called = re.findall(
        r'(?:_one_of|_list|_number|_seconds|_yes)\(options, "(\w+)"', text
    )
    return {*called, *re.findall(r'options\.get\("(\w+)"[,)]', text)}


# ---- history


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """Give a root in which two queues have worked for three days, a segment each."""
    made = Root(tmp_path_factory.mktemp("worked"))
    for queue, journal_id in (("x", "aa"), ("y", "bb")):
        journal = JournalFiles(made, queue, journal_id)
        for day in range(3):
            noon = START + day * JOURNAL_DAY + JOURNAL_DAY // 2
            journal.seal(life(f"m{day}", noon))
    return made


@pytest.mark.parametrize(
    ("condition", "files", "rows"),
    [
        ("true", 6, 18),
        ("queue = 'x'", 3, 9),
        ("queue = 'x' and date = '2027-01-16'", 1, 3),
        ("date >= '2027-01-16' and ev = 'finish'", 4, 4),
        ("date in (date'2027-01-15', date'2027-01-18')", 2, 6),
        ("date < '2027-01-15'", 0, 0),
        ("queue = 'nobody' or date = '2027-01-15'", 6, 6),
        ("state = 'done'", 6, 6),
    ],
)
def test_filters_choose_files_of_the_history(
    spark, worked, tmp_path, pushing, condition, files, rows
):
    counts = tmp_path / "counts"
    asked = {"root": str(worked.path), "of": "history", "counts": str(counts)}
    found = spark.read.format("rq").options(**asked).load().where(condition)
    assert len(found.collect()) == rows
    assert listed(counts) == {"listed": 6, "files": files if pushing else 6}


def test_a_segment_is_read_for_the_days_of_its_ends_and_beside_them(tmp_path):
    """The clock may step back by less than an hour without a new segment."""
    journal = JournalFiles(Root(tmp_path), "x", "aa")
    midnight = START + JOURNAL_DAY
    journal.seal([*life("m1", midnight - 60 * 10**6), *life("m2", midnight)])
    journal.seal(life("m3", midnight + 90 * 60 * 10**6))
    [found] = journal_plan.look(Root(tmp_path))
    days = ("20270114", "20270115", "20270116", "20270117")

    def held(number):
        segment = found.sealed[number]
        wanted = [Wanted(dates=frozenset({day})) for day in days]
        return [history_reader._may_hold(segment, one) for one in wanted]

    assert held(0) == [False, True, True, False]
    assert held(1) == [False, False, True, False]
    path = found.sealed[1].path
    path.write_bytes(path.read_bytes()[:-20])
    assert held(1) == [True] * 4  # who reads it tells what is wrong


def test_a_segment_that_could_not_be_sealed_keeps_back_no_other(tmp_path):
    journal = JournalFiles(Root(tmp_path), "x", "aa")
    older = journal.seal(life("m1", START))
    journal.seal(life("m2", START + 3600 * 10**6))
    journal.queue.journal.mkdir()
    older.rename(journal.queue.journal / older.name.partition("-")[0])
    reader = history_reader.HistoryReader(str(tmp_path), None, None)
    [share] = reader.partitions()
    read = [row for batch in reader.read(share) for row in batch.to_pylist()]
    assert [(row["seq"], row["msg"]) for row in read] == [
        (4, "m2"),
        (5, "m2"),
        (6, "m2"),
    ]
