"""The index keeps up with the queues of a root: new ones, deleted ones, restored ones."""

import json
import shutil
import sqlite3
import time

import pytest
from harness.filled import fill
from harness.index import bare_root
from harness.spool import Owner

from rq.index import keeper as keeper_module
from rq.index import schema
from rq.index.keeper import Keeper
from rq.index.questions import Index
from rq.index.rows import RunsQuestion, SearchQuestion
from rq.index.word import Said
from rq.words.states import Event, Role, State


@pytest.fixture
def root(tmp_path):
    return bare_root(tmp_path)


@pytest.fixture
def queue(root):
    """Give owners of queues with a name; they end as if they were killed."""
    owners = []

    def begin(name, **settings):
        owner = Owner(root.path, clock=time.time, name=name)
        owner.queue.config.write_text(
            json.dumps({"name": name, "script": "x", **settings})
        )
        owner.open()
        owners.append(owner)
        return owner

    yield begin
    for owner in owners:
        owner.crash()


@pytest.fixture
def keep(root):
    """Give keepers of the index; each is as a process that begins."""
    keepers = []

    def begin(**more):
        kept = {"days": 31, "limit": 2**31, "least": 0, **more}
        keepers.append(Keeper(root, **kept))
        return keepers[-1]

    yield begin
    for keeper in keepers:
        keeper.close()


def read_all(keeper):
    """Let a keeper do all that is to be done."""
    keeper._look_at = 0.0
    while keeper.step() == 0.0:
        pass


def commit(owner, number=1, **fields):
    """Accept messages and let their index read them; return their ids."""
    ids = [owner.submit(**fields) for _ in range(number)]
    owner.spool.commit()
    owner.spool.journal.seal()
    return ids


def ids_of(root, *words, **more):
    with Index.at(root) as index:
        hits = index.search(SearchQuestion(words=words, limit=10_000, **more), None)
    return {hit.msg_id for hit in hits.rows}


def test_what_queues_hold_is_found(root, queue, keep):
    mail, bank = queue("mail"), queue("bank")
    keeper = keep()
    read_all(keeper)
    first, second = commit(mail, 3, param1="order-1"), commit(bank, 2, param1="order-2")
    read_all(keeper)
    assert ids_of(root, "order") == {*first, *second}
    later = commit(mail, param1="order-3")
    read_all(keeper)
    assert ids_of(root, "order-3") == set(later)
    with Index.at(root) as index:
        fresh = index.freshness()
    assert (fresh.is_building, fresh.read) == (False, 1.0)
    assert time.time() - fresh.as_of < 60


def test_a_word_of_the_owner_lets_it_read_at_once(root, queue, keep):
    mail = queue("mail")
    keeper = keep()
    read_all(keeper)
    msg_id = mail.submit(param1="order-1")
    mail.spool.commit()
    read_all(keeper)
    assert ids_of(root, "order") == set()
    at = mail.spool.durable
    keeper.hear(Said(queue="mail", journal=at.journal, segment=at.segment, seq=at.seq))
    keeper.step()
    assert ids_of(root, "order") == {msg_id}


def test_who_begins_goes_on_where_the_last_has_ended(root, queue, keep):
    mail = queue("mail")
    ids = []
    for _ in range(4):
        ids += commit(mail, 2, param1="order")
        keeper = keep()
        read_all(keeper)
        keeper.close()
    assert ids_of(root, "order") == set(ids)
    with Index.at(root) as index:
        (hour,) = index.hours("mail", 0, time.time())
        assert hour.part["accepted"] == 8


def test_a_batch_that_was_not_written_is_read_again(root, queue, keep, monkeypatch):
    mail = queue("mail")
    ids = commit(mail, 3, param1="order")
    keeper = keep()
    with monkeypatch.context() as patched:
        patched.setattr(keeper._store, "write", fail)
        with pytest.raises(sqlite3.OperationalError):
            read_all(keeper)
    assert ids_of(root, "order") == set()
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)


def fail(*_):
    raise sqlite3.OperationalError("database or disk is full")


def test_slices_take_turns_and_lose_nothing(root, queue, keep, monkeypatch):
    monkeypatch.setattr(keeper_module, "SLICE", 3)
    monkeypatch.setattr(keeper_module, "MOST", 5)
    ids = [
        *commit(queue("mail"), 11, param1="order"),
        *commit(queue("bank"), 7, param1="order"),
    ]
    read_all(keep())
    assert ids_of(root, "order") == set(ids)


def test_a_deleted_queue_leaves_nothing(root, queue, keep):
    mail, bank = queue("mail"), queue("bank")
    commit(mail, 3, param1="order")
    ids = commit(bank, param1="order")
    keeper = keep()
    read_all(keeper)
    mail.crash()
    shutil.rmtree(mail.queue.path)
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)
    rows = rows_of(root, "SELECT name FROM queues")
    assert rows == [("bank",)]
    assert rows_of(root, "SELECT count(*) FROM messages") == [(1,)]
    assert len(rows_of(root, "SELECT rowid FROM words WHERE text MATCH 'order'")) == 1


def test_a_queue_that_is_away_keeps_its_rows(root, queue, keep):
    """Its disk is not mounted, say: it has begun, and was not deleted."""
    mail = queue("mail")
    ids = commit(mail, 3, param1="order")
    keeper = keep()
    read_all(keeper)
    root.begun.write_text('{"names": ["mail"]}')
    away = mail.queue.path.rename(root.path / "away")
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)
    away.rename(mail.queue.path)
    later = commit(mail, param1="order")
    read_all(keeper)
    assert ids_of(root, "order") == {*ids, *later}


def test_a_restored_queue_is_read_again(root, queue, keep, monkeypatch):
    monkeypatch.setattr("rq.index.retention.CHUNK", 2)
    mail = queue("mail")
    ids = commit(mail, 3, param1="order")
    mail.stop()
    backup = root.path / "backup"
    shutil.copytree(mail.queue.path, backup)
    mail.open()
    commit(mail, 5, param1="order")
    mail.stop()
    keeper = keep()
    read_all(keeper)
    assert len(ids_of(root, "order")) == 8
    shutil.rmtree(mail.queue.path)
    backup.rename(mail.queue.path)
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)
    with Index.at(root) as index:
        assert sum(h.part["accepted"] for h in index.hours("mail", 0, time.time())) == 3


def test_a_new_queue_under_an_old_name_is_another(root, queue, keep):
    mail = queue("mail")
    commit(mail, 3, param1="order")
    keeper = keep()
    read_all(keeper)
    mail.stop()
    shutil.rmtree(mail.queue.path)
    ids = commit(queue("mail"), 2, param1="order")
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)


def test_a_damaged_file_is_made_again(root, queue, keep):
    ids = commit(queue("mail"), 300, param1="order" * 20)
    keeper = keep()
    read_all(keeper)
    keeper.close()
    path = schema.place(root)
    data = bytearray(path.read_bytes())
    data[4096 : len(data) // 2] = b"\xff" * (len(data) // 2 - 4096)
    path.write_bytes(data)
    read_all(keep())
    assert ids_of(root, "order") == set(ids)


def test_a_cut_file_is_made_again(root, queue, keep):
    ids = commit(queue("mail"), 300, param1="order" * 20)
    keeper = keep()
    read_all(keeper)
    keeper.close()
    path = schema.place(root)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    read_all(keep())
    assert ids_of(root, "order") == set(ids)


def test_a_file_of_another_version_is_made_again(root, queue, keep):
    ids = commit(queue("mail"), param1="order")
    keeper = keep()
    read_all(keeper)
    keeper.close()
    base = sqlite3.connect(schema.place(root))
    base.execute("PRAGMA user_version = 99")
    base.commit()
    base.close()
    read_all(keep())
    assert ids_of(root, "order") == set(ids)


def test_params_that_are_hidden_later_go(root, queue, keep):
    mail, bank = queue("mail"), queue("bank")
    (msg_id,) = commit(mail, param1="secret", param2="order")
    origin = f"http://127.0.0.1:3333/q/mail/{msg_id}"
    (copy,) = commit(bank, param1="secret", param2="order", orig_msg_id=origin)
    keeper = keep()
    read_all(keeper)
    assert ids_of(root, "secret") == {msg_id, copy}
    settings = {"name": "mail", "script": "x", "index": {"hide": ["param1"]}}
    mail.queue.config.write_text(json.dumps(settings))
    read_all(keeper)
    assert ids_of(root, "secret") == set()
    assert ids_of(root, "order") == {msg_id, copy}
    before = schema.place(root).stat().st_ino
    read_all(keep())
    assert schema.place(root).stat().st_ino == before  # it is not made again each time


def test_what_is_too_old_goes(root, queue, keep, monkeypatch):
    monkeypatch.setattr("rq.index.retention.CHUNK", 2)
    mail = queue("mail")
    ids = commit(mail, 5, param1="order")
    for msg_id in ids[:3]:
        mail.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
        mail.end(msg_id)
    mail.spool.commit()
    mail.spool.journal.seal()
    keeper = keep()
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)
    read_all(keep(days=-1))
    assert ids_of(root, "order") == set(ids[3:])  # these still wait
    assert rows_of(root, "SELECT * FROM runs") == []
    assert rows_of(root, "SELECT rowid FROM words WHERE text MATCH 'order'") == [
        *rows_of(root, "SELECT id FROM messages ORDER BY id")
    ]


def test_the_oldest_go_when_there_is_too_much(root, queue, keep):
    mail = queue("mail")
    ids = commit(mail, 50, param1="order")
    for msg_id in ids:
        mail.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
        mail.end(msg_id)
    mail.spool.commit()
    mail.spool.journal.seal()
    read_all(keep(limit=1))
    assert ids_of(root, "order") == set()


def test_params_go_with_the_history_that_holds_them(root, queue, keep):
    mail = queue("mail")
    first, second = commit(mail, param1="order-1"), commit(mail, param1="order-2")
    for msg_id in first + second:
        mail.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
        mail.end(msg_id)
    mail.apply()
    for msg_id in first + second:
        mail.spool.fire(msg_id, Event.EXPIRE, Role.CLEANER)
    mail.spool.commit()
    mail.spool.journal.seal()
    keeper = keep()
    read_all(keeper)
    assert ids_of(root, "order", state=State.GONE) == {*first, *second}
    min((mail.queue.history / mail.spool.journal_id).iterdir()).unlink()
    keeper._old_at = 0.0
    read_all(keeper)
    assert ids_of(root, "order") == set(second)


def test_a_full_disk_stops_it(root, queue, keep):
    ids = commit(queue("mail"), param1="order")
    keeper = keep(least=2**60)
    keeper.step()
    assert ids_of(root, "order") == set()
    keeper._least = 0
    read_all(keeper)
    assert ids_of(root, "order") == set(ids)


def test_what_ran_is_told(root, queue, keep):
    mail = queue("mail")
    (msg_id,) = commit(mail, param1="order")
    mail.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
    facts = {"cause": "exit", "text": "status 3", "outcome": "err", "run_us": 5}
    mail.spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
    mail.spool.commit()
    mail.spool.journal.seal()
    read_all(keep())
    with Index.at(root) as index:
        (run,) = index.runs(RunsQuestion(since=0), None).rows
        (group,) = index.failures(None, None)
    assert (run.msg_id, run.outcome, run.text) == (msg_id, "err", "status 3")
    assert (group.count, group.wording) == (1, "status #")


def rows_of(root, statement):
    with Index.at(root) as index:
        return index._base.execute(statement).fetchall()


def test_messages_that_outlive_their_history_are_held(root, queue, keep):
    mail = queue("mail")
    waiting, failed, marked = commit(mail, 3, param1="order")
    for msg_id in (failed, marked):
        mail.spool.fire(msg_id, Event.CLAIM, Role.QUEUE)
        facts = {"cause": "exit", "text": "status 3", "outcome": "err"}
        mail.spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
    mail.spool.fire(marked, Event.DISMISS, Role.CREATOR)
    mail.apply()
    mail.spool.journal.seal()
    later = commit(mail, param1="order")
    mail.apply()
    for path in sorted((mail.queue.history / mail.spool.journal_id).iterdir())[:2]:
        path.unlink()
    read_all(keep())
    assert ids_of(root, "order") == {waiting, failed, marked, *later}
    assert ids_of(root, "status 3", state=State.ERR) == {failed}
    assert ids_of(root, state=State.DISMISSED) == {marked}
    with Index.at(root) as index:
        (group,) = index.failures(None, None)
        assert group.sample == ("mail", failed)
        assert sum(h.part["accepted"] for h in index.hours("mail", 0, time.time())) == 1
    mail.spool.fire(failed, Event.REQUEUE, Role.CREATOR)
    mail.spool.commit()
    mail.spool.journal.seal()
    read_all(keep())
    assert ids_of(root, state=State.QUE) == {waiting, failed, *later}


def test_a_filled_root_is_read_as_it_was_filled(tmp_path, keep, root):
    fill(tmp_path, queues=3, messages=60, failures=7)
    read_all(keep())
    with Index.at(root) as index:
        runs = index.runs(RunsQuestion(since=0), None)
        groups = index.failures(None, None)
    assert (runs.sums.runs, runs.sums.failed) == (57, 7)
    assert sum(group.count for group in groups) == 7
    assert len(ids_of(root, state=State.QUE)) == 3
