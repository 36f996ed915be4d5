"""Sums over a span are what counting the rows gives, whatever is written and removed."""

import random
import sqlite3
import time

import pytest
from harness.index import Lines, bare_root, fill, message_id

from rq.index import schema, sums
from rq.index.questions import Index
from rq.index.retention import Retention
from rq.index.rows import RunsQuestion
from rq.index.store import Store

HOUR = 3600.0
NAMES = ("mail", "bank", "rare")
_COUNTED = """
SELECT count(*), total(outcome = 'err'), max(ran) FROM (
    SELECT outcome, ran FROM runs WHERE ended >= :since AND started <= :until
    AND queue IN (SELECT id FROM queues WHERE name IN ({names}))
    UNION ALL
    SELECT 'running', max(:now - started, 0) FROM messages
    WHERE state = 'run' AND started <= :until
    AND queue IN (SELECT id FROM queues WHERE name IN ({names})))"""


@pytest.fixture
def root(tmp_path):
    return bare_root(tmp_path)


class Story:
    """Queues that run messages for half a day: short and long ones, over hours and back."""

    def __init__(self, root, seed):
        self.root, self.rule = root, random.Random(seed)
        fill(root, *map(Lines, map("before-{}".format, range(9))))
        self.begun = time.time() - 12 * HOUR
        self.queues = [Lines(name, self.begun) for name in NAMES]
        self.number = 0

    def go_on(self, messages):
        for _ in range(messages):
            lines = self.rule.choices(self.queues, (8, 4, 1))[0]
            lines.now += self.rule.random() * 90
            self.number += 1
            msg_id = message_id(self.number)
            lines.accept(msg_id)
            for _ in range(self.rule.choice((1, 1, 1, 3)) - 1):
                lines.run(msg_id, "retry", "que", "exit", ran=self.rule.random() * 60)
            self._end(lines, msg_id)
        fill(self.root, *self.queues)
        for lines in self.queues:
            lines.lines.clear()

    def _end(self, lines, msg_id):
        way = self.rule.random()
        ran = self.rule.choice((1.0, 20.0, 20.0, 900.0, 3 * HOUR * self.rule.random()))
        if way < 0.05:
            lines.line(msg_id, "claim", "run")
        elif way < 0.2:
            lines.fail(msg_id)
        elif way < 0.25:  # the clock is set back while it runs
            lines.line(msg_id, "claim", "run")
            lines.line(msg_id, "finish", "done", after=-2 * HOUR, cause="done")
            lines.now += 2 * HOUR
        else:
            lines.run(msg_id, ran=ran)
            lines.now -= ran  # another slot goes on meanwhile

    def span(self):
        """Return two moments, in the order of time; some are those of whole hours."""
        moments = [self.begun + self.rule.uniform(-2, 14) * HOUR for _ in range(2)]
        if self.rule.random() < 0.3:
            moments = [moment // HOUR * HOUR for moment in moments]
        return sorted(moments)


def counted(root, since, until, names):
    """Return what plain SQL counts: attempts, failed ones, the longest (µs)."""
    with sqlite3.connect(schema.place(root)) as base:
        marks = ", ".join(f"'{name}'" for name in names)
        values = {"since": since * 1e6 // 1, "until": until * 1e6 // 1}
        values["now"] = int(time.time() * 1e6)
        return base.execute(_COUNTED.format(names=marks), values).fetchone()


def same(root, since, until, visible=None, **more):
    """Check one span; return how many attempts it has."""
    question = RunsQuestion(since=since, until=until, limit=1, **more)
    with Index.at(root) as index:
        total = index.runs(question, visible).sums
    names = [more["queue"]] if more else NAMES if visible is None else visible
    runs, failed, longest = counted(root, since, until, names)
    assert (repr(total.runs), repr(total.failed)) == (repr(runs), repr(int(failed)))
    if longest is None:
        assert total.slowest is None
    else:  # one that runs has gone on for some milliseconds
        assert total.slowest.ran == pytest.approx(longest / 1e6, abs=2)
    return runs


def test_a_span_of_any_kind_counts_as_its_rows_do(root):
    story = Story(root, 53)
    story.go_on(600)
    story.go_on(600)
    asked = [same(root, *story.span()) for _ in range(60)]
    assert len(set(asked)) > 30
    for _ in range(20):
        same(root, *story.span(), queue=story.rule.choice(NAMES))
        same(root, *story.span(), visible=frozenset(story.rule.sample(NAMES, 2)))
    assert same(root, 0, 2e9, visible=frozenset()) == 0


def listed(root, since, until, order, more):
    """Return what a page holds, and what plain SQL says of it: ids of attempts."""
    question = RunsQuestion(since=since, until=until, order=order, **more)
    with Index.at(root) as index:
        rows = index.runs(question, None).rows
    way = "DESC" if question.is_descending else "ASC"
    with sqlite3.connect(schema.place(root)) as base:
        plain = base.execute(
            "SELECT msg, r.attempt FROM (SELECT message, attempt, started, ended, ran, id "
            "FROM runs WHERE ended >= :since AND started <= :until UNION ALL "
            "SELECT id, attempt, started, NULL, max(:now - started, 0), -id "
            "FROM messages WHERE state = 'run' AND started <= :until) r "
            f"JOIN messages m ON m.id = message ORDER BY r.{order} {way}, "
            "r.started DESC, r.id LIMIT :limit OFFSET :offset",
            {
                "since": int(since * 1e6),
                "until": int(until * 1e6),
                "limit": question.limit,
                "offset": question.offset,
                "now": int(time.time() * 1e6),
            },
        ).fetchall()
    return [(run.msg_id, run.attempt) for run in rows], plain


def test_a_page_holds_the_same_however_much_is_passed_over(root):
    story = Story(root, 56)
    story.go_on(900)
    for order in ("started", "ended", "ran") * 8:
        for limit, offset in ((1, 0), (20, 0), (20, 35), (300, 500)):
            more = {"limit": limit, "offset": offset}
            more["is_descending"] = story.rule.random() < 0.7
            page, plain = listed(root, *story.span(), order, more)
            assert page == plain


def test_what_leaves_is_counted_no_more(root):
    story = Story(root, 54)
    story.go_on(2500)
    store = Store(root)
    retention = Retention(store)
    retention.remove_old(days=7 / 24, now=time.time())
    for _ in range(15):
        same(root, *story.span())
    retention.shrink(0)
    for _ in range(15):
        same(root, *story.span())
    number = store.queues()["mail"][0]
    while retention.clear(number):
        pass
    for _ in range(15):
        same(root, *story.span())
    assert same(root, 0, 2e9, queue="mail") == 0
    store.close()
    with sqlite3.connect(schema.place(root)) as base:
        kept = base.execute("SELECT count(*), min(runs) FROM sums").fetchone()
    assert kept == (0, None) or kept[1] > 0


def test_only_the_rows_at_the_edges_are_counted(root):
    """Rows of a whole hour are taken away behind its sums: they are said all the same."""
    lines = Lines("mail", (time.time() // HOUR - 5) * HOUR + 600)
    for number in range(10):
        lines.accept(message_id(number))
        lines.run(message_id(number))
    fill(root, lines)
    with sqlite3.connect(schema.place(root)) as base:
        base.execute("DELETE FROM runs WHERE ran < 5000000 AND id > 1")
    base.close()
    whole = (time.time() // HOUR - 5) * HOUR
    with Index.at(root) as index:
        assert index.runs(RunsQuestion(since=whole), None).sums.runs == 10
        assert index.runs(RunsQuestion(since=whole + 1), None).sums.runs == 1


def test_a_batch_that_is_written_meanwhile_is_not_in_the_sums(root):
    story = Story(root, 55)
    story.go_on(50)
    before = same(root, 0, 2e9)
    base = schema.reader(root)
    with sums.moment(base):
        base.execute("SELECT count(*) FROM sums").fetchone()
        story.go_on(50)
        assert base.execute("SELECT total(runs) FROM sums").fetchone()[0] <= before
    base.close()
    assert same(root, 0, 2e9) > before
