"""Rows in the spool: what the journal, the index and the files tell of them."""

import json

import pytest
from harness.spool import NOW, a_message, check_live

from rq.errors import Damaged, WrongState
from rq.spool import checkpoint, decisions, index, rows, transactions
from rq.spool.transactions import Standing


def opened(owner, key=None):
    return decisions.open_one(owner.spool, key, 60.0)


def handed_in(owner, txn, *values):
    """Hand in rows; return the name of their file."""
    file = owner.spool.new_id()
    lines = [json.dumps({"param1": value}).encode() for value in values]
    digest = rows.write(owner.queue, file, lines)
    decisions.add_rows(owner.spool, txn, file, len(lines), digest)
    return file


def committed(owner, *values):
    """Accept rows; return the transaction and their file."""
    txn = opened(owner)
    file = handed_in(owner, txn, *values)
    decisions.commit(owner.spool, txn, [], files=[file])
    return txn, file


def feed(owner, number=1):
    """Make messages of the next rows."""
    for _ in range(number):
        first = next(iter(owner.spool.txns.stock))
        line = rows.read(owner.queue, first)[0]
        place = first.file, first.taken
        message = a_message(owner.spool.new_id(), **json.loads(line))
        owner.spool.submit(message, row=place)


def again(owner):
    """kill -9, and the next start."""
    owner.spool.commit()
    owner.crash()
    return owner.open()


def left(owner):
    return [rows.read(owner.queue, one) for one in owner.spool.txns.stock]


def there(owner):
    return {path.name for path in owner.queue.journal.glob("*rows-*")}


def lines(*values):
    return [json.dumps({"param1": value}).encode() for value in values]


def test_a_file_stays_until_the_line_of_its_last_row_is_durable(owner):
    committed(owner, "a", "b")
    owner.spool.commit()
    feed(owner, 2)
    stock = owner.spool.txns.stock
    assert stock.left == 0
    assert stock.droppable(owner.spool.durable_seq, 9) == []
    owner.spool.commit()
    assert len(stock.droppable(owner.spool.durable_seq, 9)) == 1
    assert not stock.drops(owner.spool.durable_seq)


def test_what_was_fed_is_fed_no_more_after_a_crash(owner):
    _, file = committed(owner, "a", "b", "c")
    feed(owner)
    again(owner)
    assert left(owner) == [lines("b", "c")]
    assert [one.due for one in owner.spool.txns.stock] == [NOW]
    feed(owner, 2)
    again(owner)
    assert left(owner) == []
    assert owner.spool.counts.of("que") == 3
    assert f"rows-{file}" not in there(owner)


@pytest.mark.parametrize("fed", [0, 1, 2])
def test_the_index_tells_what_is_left_though_it_was_written_meanwhile(owner, fed):
    """Its lines may be newer than the event that it says it follows."""
    txn, _ = committed(owner, "a", "b", "c")
    owner.spool.commit()
    source = index.lines_of(owner.spool)
    writing = index.Writing(owner.spool.dir_fd, source)
    writing.write_slice(1)  # its head is there
    feed(owner, fed)
    owner.spool.commit()
    while writing.write_slice():
        pass
    writing.finish()
    again(owner)
    assert left(owner) == [lines("a", "b", "c")[fed:]]
    feed(owner, 3 - fed)
    again(owner)
    assert owner.spool.counts.of("que") == 3
    told = owner.spool.txns.by_id[txn.txn_id]
    decisions.check_files(told, list(txn.rows))


def test_what_no_line_names_is_removed_by_a_start(owner):
    _, kept = committed(owner, "a")
    rows.write(owner.queue, "20260101.0000.00.000.1", lines("never"))
    (owner.queue.journal / ".rows-half").write_bytes(b"{")
    again(owner)
    assert there(owner) == {f"rows-{kept}"}
    assert owner.spool.txns.stock.left == 1


def test_without_an_index_nothing_is_removed_that_may_be_of_use(owner):
    """A clean stop has left no index, and lines of the journal are gone: who knows."""
    committed(owner, "a")
    owner.stop()
    owner.queue.index.unlink()
    owner.open()
    assert len(there(owner)) == 1


def test_an_abort_and_a_commit_of_others_let_files_go(owner):
    first, second = opened(owner), opened(owner)
    handed_in(owner, first, "never")
    kept = handed_in(owner, second, "a")
    handed_in(owner, second, "never")
    decisions.abort(owner.spool, first)
    decisions.commit(owner.spool, second, [], files=[kept])
    owner.spool.commit()
    stock = owner.spool.txns.stock
    assert len(stock.droppable(owner.spool.durable_seq, 9)) == 2
    again(owner)
    assert there(owner) == {f"rows-{kept}"}
    assert left(owner) == [lines("a")]


def test_a_transaction_is_remembered_as_long_as_rows_are_left(owner):
    txn, _ = committed(owner, "a")
    other = opened(owner, "k")
    decisions.commit(owner.spool, other, [])
    txns = owner.spool.txns
    later = NOW + 2 * transactions.REMEMBERED
    txns.forget(later)
    assert list(txns.by_id) == [txn.txn_id]
    feed(owner)
    txns.forget(later)
    assert list(txns.by_id) == []


def test_rows_that_nothing_tells_of_any_more_are_set_aside(owner):
    """The index and the checkpoint are lost, and old lines of the journal are gone."""
    _, file = committed(owner, "a")
    (owner.queue.journal / f".rows-{file}.tmp").write_bytes(b"{")
    owner.stop()
    owner.queue.index.unlink()
    owner.queue.checkpoint.unlink()
    for sealed in owner.queue.history.glob("*/*.jsonl"):
        sealed.unlink()
    owner.open()
    assert owner.spool.txns.stock.left == 0
    name = f"aside-rows-{file}"
    assert there(owner) == {name}
    found = [one.subject for one in check_live(owner.spool) if one.kind == "rows"]
    assert found == [name]
    owner.stop()
    owner.open()
    assert there(owner) == {name}


def test_files_that_may_go_only_later_ask_for_no_turn(owner):
    """Else a disk that takes nothing would be asked without a pause."""
    txn = opened(owner)
    handed_in(owner, txn, "never")
    decisions.abort(owner.spool, txn)
    stock = owner.spool.txns.stock
    assert not stock.drops(owner.spool.durable_seq)
    owner.spool.commit()
    assert stock.drops(owner.spool.durable_seq)


def test_the_same_files_may_be_said_again_and_no_others(owner):
    txn, file = committed(owner, "a")
    feed(owner)
    again(owner)
    told = owner.spool.txns.by_id[txn.txn_id]
    assert (told.standing, told.number) == (Standing.COMMITTED, 1)
    decisions.check_files(told, [file])
    for others in ([], [file, "x"]):
        with pytest.raises(WrongState, match="with other rows than these"):
            decisions.check_files(told, others)


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_file_that_is_not_what_was_accepted_is_damage(owner, how):
    _, file = committed(owner, "a", "b")
    path = owner.queue.journal / f"rows-{file}"
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"b", b"c"))
    with pytest.raises(Damaged, match="bring it back from a backup"):
        left(owner)


def test_a_row_of_the_index_without_rows_is_as_an_older_rq_wrote_it(owner):
    plain = opened(owner, "k")
    decisions.commit(owner.spool, plain, [])
    with_rows, _ = committed(owner, "a")
    assert len(plain.to_json()) == 11
    assert len(with_rows.to_json()) == 12


def test_a_checkpoint_counts_the_rows_that_are_left(owner):
    committed(owner, "a", "b")
    feed(owner)
    owner.checkpoint()
    [(_, due, [row])] = checkpoint.read(owner.queue).rows
    assert (due, row[1], row[3]) == (NOW, 2, 1)
    feed(owner)
    owner.stop()
    assert checkpoint.read(owner.queue).rows == ()
