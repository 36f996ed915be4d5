"""The messages of one key stand in their order, most of them in few bytes."""

import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st

from rq.layout import QueueDir
from rq.queues.schedule.line import Item, Line
from rq.queues.schedule.waiting import Waiting
from rq.spool import index
from rq.spool.entry import Entry, came
from rq.spool.transactions import Transactions
from rq.words.states import State

# What comes in a row, some that come between, those that are taken.
_dues = st.integers(0, 9).map(float)
STEPS = st.one_of(
    st.tuples(st.just("come"), st.lists(_dues, max_size=100)),
    st.tuples(st.just("in a row"), st.integers(0, 200)),
    st.tuples(st.just("go"), st.integers(0, 150)),
)


@example([("in a row", 70), ("come", [9.0]), ("in a row", 3), ("go", 74)])
@example([("in a row", 200), ("go", 199), ("come", [0.0, 0.0]), ("go", 9)])
@given(st.lists(STEPS, max_size=12))
def test_a_line_is_in_its_order_whatever_comes_and_goes(steps):
    line, model, seq = Line(), [], 0
    for what, value in steps:
        if what == "go":
            for _ in range(min(value, len(model))):
                assert line.first() == model.pop(0)
                line.pop()
        for due in (
            [5.0] * value if what == "in a row" else value if what == "come" else ()
        ):
            seq += 1
            item = Item(due, seq, f"m{seq}")
            model = sorted([*model, item])
            assert line.add(item) or line.first() != item
        assert list(line.in_order()) == sorted(line) == model
        assert len(line) == len(model)


@given(st.lists(st.lists(_dues, min_size=1, max_size=90), max_size=8))
def test_a_line_that_is_filled_at_once_is_in_its_order(parts):
    line, model = Line(), []
    for part in parts:
        items = [Item(due, len(model) + n, "m") for n, due in enumerate(part)]
        model += items
        line.extend(list(items))
    line.settle()
    assert list(line.in_order()) == sorted(model)


def test_a_message_takes_few_bytes_even_behind_one_of_next_year():
    line, number = Line(), 20_000
    for n in range(100):
        line.add(Item(1.0, n, "m"))
    line.add(Item(9.0, 0, "of next year"))
    tracemalloc.start()
    for n in range(number):
        line.add(Item(2.0, n, "m"))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / number < 32


def test_what_has_gone_is_not_kept():
    line, ids = Line(), [f"message-{n}" for n in range(300)]
    for n, msg_id in enumerate(ids):
        line.add(Item(1.0, n, msg_id))
    for _ in range(140):
        line.pop()
    kept = {id(text) for text in line._row._ids}
    assert not kept & {id(msg_id) for msg_id in ids[:140]}


def test_a_message_that_is_due_at_once_has_one_number_for_due_and_arrival():
    due = 1e9 + 0.5
    assert came(due, due + 0.0005) is due
    assert came(due, due - 0.1) == due - 0.1
    assert came(due, due + 0.002) == due + 0.002


BYTES = 330  # 315: its id, its entry, two numbers, its place in the order and a table


def indexed(queue, number):
    """Write the index of messages that wait, and have come at once."""
    entries = {}
    for seq in range(1, number + 1):
        at = 1e9 + seq / 1000
        msg_id = f"20261128.2144.31.123.{1795363411000 + seq}"
        entries[msg_id] = Entry(State.QUE, State.QUE, at, 1000 + seq, since=at + 0.0001)
    queue.index.parent.mkdir(parents=True)
    rows = index.lines("j", number, entries, {}, Transactions())
    queue.index.write_bytes(b"".join(rows))


def test_a_message_that_waits_has_few_bytes_after_a_start(tmp_path):
    number, queue = 20_000, QueueDir(tmp_path)
    indexed(queue, number)
    tracemalloc.start()
    entries = index.read(queue).entries
    waiting = Waiting(None, None, None, None)
    waiting.fill((Item(e.due, e.seq, i), e.rank) for i, e in entries.items())
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(waiting) == len(entries) == number
    assert held / number <= BYTES
