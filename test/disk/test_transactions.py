"""Transactions in the spool: all or nothing, whatever of their lines a crash has left."""

from collections import deque

import orjson
import pytest
from harness.spool import a_message

from rq.errors import Damaged, WrongState
from rq.index.follow import Follower
from rq.index.store import Place
from rq.spool import checkpoint, decisions, index, lag, transactions
from rq.spool.transactions import Standing
from rq.words.states import Event, Note, Role, State


def again(owner):
    """kill -9, and the next start."""
    owner.spool.commit()
    owner.crash()
    return owner.open()


def opened(owner, key=None):
    return decisions.open_one(owner.spool, key, 60.0)


def prepared(owner, one, number, **fields):
    """Prepare messages; return their ids."""
    ids = []
    for _ in range(number):
        msg_id = owner.spool.new_id()
        owner.spool.prepare_in(one.txn_id, a_message(msg_id, **fields))
        ids.append(msg_id)
    return ids


def states(owner, ids):
    return [owner.spool.find(one) for one in ids]


def places(owner, ids):
    """Return where the folders lie once all are settled."""
    owner.spool.commit()
    owner.spool.settle_all()
    return [owner.queue.message(owner.spool.find(one) or State.PREP, one).is_dir()
            for one in ids]  # fmt: skip


@pytest.mark.parametrize("covered", [False, True])
def test_what_a_message_counts_is_kept_over_a_crash(owner, covered):
    one = opened(owner)
    ids = prepared(owner, one, 1, count=3)
    if covered:
        owner.checkpoint()
    decisions.commit(owner.spool, one, ids)
    again(owner)
    assert owner.spool.entries[ids[0]].count == 3
    owner.apply()
    assert owner.spool.claim(ids[0], 0).count == 3


def test_how_many_are_open_is_known_over_a_crash_and_a_stop(owner):
    made = [opened(owner, key) for key in ("a", "b", None)]
    decisions.commit(owner.spool, made[0], prepared(owner, made[0], 2))
    assert owner.spool.txns.open == 2
    assert again(owner).txns.open == 2
    decisions.abort(owner.spool, owner.spool.txns.get(made[1].txn_id))
    owner.stop()
    assert owner.open().txns.open == 1


def test_an_abort_leaves_nothing_of_a_commit_that_came_to_nothing(owner):
    one = opened(owner)
    ids = prepared(owner, one, 2)
    transactions.write_manifest(owner.queue, one.txn_id, ids)
    decisions.abort(owner.spool, one)
    assert not list(owner.queue.journal.glob("txn-*"))


def test_what_is_committed_after_a_clean_stop_keeps_its_due_and_count(owner):
    one = opened(owner)
    ids = prepared(owner, one, 1, due=4e9, count=3)
    owner.apply()
    owner.stop()
    spool = owner.open()
    decisions.commit(spool, spool.txns.get(one.txn_id), ids)
    assert (spool.entries[ids[0]].due, spool.entries[ids[0]].count) == (4e9, 3)


def test_what_is_chosen_waits_in_que_and_the_rest_is_gone(owner):
    one = opened(owner)
    ids = prepared(owner, one, 4)
    decisions.commit(owner.spool, one, ids[:3])
    assert states(owner, ids) == [State.QUE] * 3 + [None]
    assert places(owner, ids) == [True, True, True, False]
    assert owner.spool.counts.of(State.PREP) == 0
    assert owner.spool.counts.of(State.QUE) == 3


@pytest.mark.parametrize("settled", [False, True])
def test_prepared_messages_survive_with_their_transaction(owner, settled):
    one = opened(owner, "k")
    ids = prepared(owner, one, 2, param1="x")
    if settled:
        places(owner, ids)
    spool = again(owner)
    known = spool.txns.with_key("k")
    assert (known.txn_id, list(known.members)) == (one.txn_id, ids)
    assert states(owner, ids) == [State.PREP] * 2
    decisions.commit(spool, known, ids)
    spool = again(owner)
    assert states(owner, ids) == [State.QUE] * 2
    assert spool.read(ids[0]).params == {"param1": "x"}


def decision(owner, one, ids, manifest=False):
    """Write the line of a commit and nothing of what follows from it."""
    digest = transactions.digest(ids)
    said = {"is": Standing.COMMITTED, "n": len(ids), "sha256": digest}
    listed = {"manifest": True} if manifest else {"ids": ids}
    owner.spool.note(Note.TXN, txn=one.txn_id, **said, **listed)


@pytest.mark.parametrize("kind", ["fresh", "checkpoint", "stop"])
def test_a_decision_alone_is_carried_out_by_the_next_start(owner, kind):
    one = opened(owner)
    ids = prepared(owner, one, 5, due=2_000_000_000)
    if kind == "checkpoint":
        owner.spool.commit()
        point = checkpoint.begin(owner.spool, "boot")
        owner.spool.settle_all()
        checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    if kind == "stop":
        owner.stop()
        owner.open()
    decision(owner, one, ids[:3])
    for _ in range(2):
        spool = again(owner)
        assert states(owner, ids) == [State.QUE] * 3 + [None] * 2
        assert [spool.entries[i].due for i in ids[:3]] == [2_000_000_000] * 3
    assert places(owner, ids) == [True] * 3 + [False] * 2
    # Who reads the history is told of each once.
    owner.stop()
    told = [one["msgs"] for one in history(owner) if one["ev"] == "commit"]
    assert told == [ids[:3]]
    owner.open()


def history(owner):
    paths = sorted(owner.queue.history.glob("*/*.jsonl"))
    texts = (text for path in paths for text in path.read_bytes().splitlines())
    return [orjson.loads(text) for text in texts]


def test_what_an_abort_left_behind_is_discarded_by_the_next_start(owner):
    one = opened(owner)
    ids = prepared(owner, one, 3)
    owner.spool.note(Note.TXN, txn=one.txn_id, **{"is": Standing.ABORTED})
    again(owner)
    assert states(owner, ids) == [None] * 3
    assert places(owner, ids) == [False] * 3


def test_without_a_decision_none_is_in_que(owner):
    one = opened(owner)
    ids = prepared(owner, one, 3)
    spool = again(owner)
    assert states(owner, ids) == [State.PREP] * 3
    decisions.abort(spool, spool.txns.get(one.txn_id))
    assert states(owner, ids) == [None] * 3


def test_more_ids_than_a_line_can_hold_lie_in_a_manifest(owner):
    one = opened(owner)
    ids = prepared(owner, one, 6)
    transactions.write_manifest(owner.queue, one.txn_id, ids[:5])
    decision(owner, one, ids[:5], manifest=True)
    again(owner)
    assert states(owner, ids) == [State.QUE] * 5 + [None]
    known = owner.spool.txns.get(one.txn_id)
    assert known.manifest
    transactions.drop_manifest(owner.queue, known)
    assert not list(owner.queue.journal.glob("txn-*"))


def manifests(owner):
    return sorted(one.name for one in owner.queue.journal.glob("*txn-*"))


def test_a_manifest_that_no_decision_names_is_removed_at_the_next_start(owner):
    aborted, undecided = opened(owner), opened(owner)
    for one in (aborted, undecided):
        ids = prepared(owner, one, 2)
        transactions.write_manifest(owner.queue, one.txn_id, ids)
    transactions.write_manifest(owner.queue, "forgotten", ids)
    (owner.queue.journal / ".txn-cut.tmp").write_text("x")
    decisions.abort(owner.spool, aborted)
    again(owner)
    assert manifests(owner) == []
    decisions.commit(owner.spool, owner.spool.txns.get(undecided.txn_id), ids)
    assert states(owner, ids) == [State.QUE] * 2


def test_a_manifest_that_a_second_recovery_needs_is_kept(owner):
    one = opened(owner)
    ids = prepared(owner, one, 3)
    transactions.write_manifest(owner.queue, one.txn_id, ids)
    decision(owner, one, ids, manifest=True)
    for _ in range(2):
        again(owner)
        assert manifests(owner) == [f"txn-{one.txn_id}"]
        assert states(owner, ids) == [State.QUE] * 3


def test_a_manifest_that_is_another_is_damage(owner):
    one = opened(owner)
    ids = prepared(owner, one, 3)
    transactions.write_manifest(owner.queue, one.txn_id, ids[:2])
    decision(owner, one, ids, manifest=True)
    owner.spool.commit()
    owner.crash()
    with pytest.raises(Damaged, match="not the list"):
        owner.open()


def test_a_decision_is_known_after_stops_and_without_an_index(owner):
    one = opened(owner, "k")
    ids = prepared(owner, one, 2)
    decisions.commit(owner.spool, one, ids)
    owner.stop()
    spool = owner.open()
    assert decisions.is_repeated(spool.txns.with_key("k"), ids)
    owner.stop()
    owner.queue.index.unlink()
    spool = owner.open()
    known = spool.txns.with_key("k")
    assert decisions.is_repeated(known, list(reversed(ids)))
    with pytest.raises(WrongState, match="committed, with other messages"):
        decisions.is_repeated(known, ids[:1])
    with pytest.raises(WrongState, match="nothing can be added"):
        decisions.check_open(known)


def test_a_decision_is_forgotten_after_seven_days(owner):
    one = opened(owner, "k")
    decisions.abort(owner.spool, one)
    owner.spool.txns.forget(owner.clock() + 7 * 86400 - 1)
    assert owner.spool.txns.get(one.txn_id)
    owner.spool.txns.forget(owner.clock() + 7 * 86400 + 1)
    assert owner.spool.txns.get(one.txn_id) is None


def test_a_chain_that_has_not_followed_keeps_no_later_decision(owner):
    head, later = opened(owner), opened(owner, "k")
    bound = decisions.open_one(owner.spool, None, 60.0, head.txn_id)
    decisions.abort(owner.spool, head)
    decisions.abort(owner.spool, later)
    txns, next_week = owner.spool.txns, owner.clock() + 7 * 86400 + 1
    txns.forget(next_week)
    assert set(txns.by_id) == {head.txn_id, bound.txn_id}
    decisions.abort(owner.spool, bound)
    txns.forget(next_week)
    assert not txns.by_id


class Unlooked(dict):
    """A table in which one may look something up, and no more."""

    def __iter__(self):
        raise AssertionError("all of it is looked through")

    keys = values = items = __iter__


def test_a_turn_does_not_look_through_what_is_decided(owner):
    for number in range(3):
        one = opened(owner, f"k{number}")
        decisions.commit(owner.spool, one, prepared(owner, one, 1))
        owner.clock.now += 1
    last = opened(owner)
    table = owner.spool.txns
    table.by_id, table._decided = Unlooked(table.by_id), First(table._decided)
    assert [one.txn_id for one in table.open_ones()] == [last.txn_id]
    assert table.with_manifest() == []
    table.forget(owner.clock.now)
    assert len(table.by_id) == 4
    table.forget(owner.clock.now + 7 * 86400 - 2)
    assert table.with_key("k0") is None
    assert table.with_key("k1") is not None


class First(deque):
    """A row of which one may look at the first."""

    def __iter__(self):
        raise AssertionError("all of it is looked through")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_went_back_keeps_no_decision_for_ever(owner, restarted):
    for back in (True, False):
        if back:
            owner.clock.now += 1e8
        one = opened(owner)
        decisions.abort(owner.spool, one)
        if back:
            owner.clock.now -= 1e8
    if restarted:
        owner.apply()
        owner.stop()
        owner.open()
    now = owner.clock.now
    owner.spool.txns.forget(now)
    assert len(owner.spool.txns.by_id) == 2
    for weeks in (1, 2):
        owner.spool.txns.forget(now + weeks * (7 * 86400 + 1))
    assert owner.spool.txns.by_id == {}


def test_very_many_are_in_the_index_in_lines_of_a_bounded_size(owner):
    for number in range(2500):
        decisions.abort(owner.spool, opened(owner, f"k{number}"))
    decisions.commit(owner.spool, kept := opened(owner, "kept"), [])
    table = owner.spool.txns
    lines = list(index.lines("j", 1, {}, {}, table))
    assert max(len(one) for one in lines) < 300_000
    owner.apply()
    owner.stop()
    assert len(owner.open().txns.by_id) == 2501
    assert owner.spool.txns.with_key("kept").txn_id == kept.txn_id


def test_a_key_whose_transaction_was_aborted_begins_a_new_one(owner):
    one = opened(owner, "k")
    assert opened(owner, "k") is one
    decisions.abort(owner.spool, one)
    assert opened(owner, "k").txn_id != one.txn_id


@pytest.mark.parametrize("event", [Event.COMMIT, Event.DISCARD, Event.EXPIRE])
def test_a_message_does_not_leave_its_transaction_alone(owner, event):
    one = opened(owner)
    [msg_id] = prepared(owner, one, 1)
    with pytest.raises(WrongState, match="holds message"):
        owner.spool.fire(msg_id, event, Role.CREATOR)


def test_a_message_removed_by_hand_stops_the_commit_of_all(owner):
    one = opened(owner)
    ids = prepared(owner, one, 2)
    owner.stop()
    folder = owner.queue.message(State.PREP, ids[0])
    (folder / "msg").unlink()
    folder.rmdir()
    spool = owner.open()
    with pytest.raises(WrongState, match="removed by hand"):
        decisions.check_there(spool, spool.txns.get(one.txn_id), ids[0])


def test_the_lines_of_a_commit_name_each_message_for_those_who_read_history(owner):
    one = opened(owner)
    ids = prepared(owner, one, 3)
    decisions.commit(owner.spool, one, ids[:2])
    owner.stop()
    lines = history(owner)
    assert [one["ev"] for one in lines[1:]] == [
        "txn", "prepare", "prepare", "prepare", "txn", "commit", "discard", "stopped",
    ]  # fmt: skip
    assert lines[6]["msgs"] == ids[:2]
    assert lines[7]["msgs"] == ids[2:]
    owner.open()


def settled(spool):
    """Do what the loop does in its turns; return what is still to be settled."""
    for _ in range(20):
        spool.settle_some(1.0)
    return list(spool.unsettled)


def test_folders_that_are_put_off_are_made_for_a_checkpoint_and_when_they_are_many(
    owner, monkeypatch
):
    monkeypatch.setattr(lag, "MOST_PUT_OFF", 3)
    one = opened(owner)
    few = prepared(owner, one, 3)
    assert settled(owner.spool) == few
    owner.spool.commit()
    checkpoint.begin(owner.spool, "boot")
    assert owner.spool.checkpoint_waits
    assert settled(owner.spool) == []
    assert not owner.spool.checkpoint_waits
    assert [owner.queue.message(State.PREP, each).is_dir() for each in few] == [
        True
    ] * 3
    many = prepared(owner, one, 5)
    assert settled(owner.spool) == many[4:]
    spool = again(owner)
    decisions.commit(spool, spool.txns.by_id[one.txn_id], [*few, *many])
    spool.commit()
    assert not settled(spool)
    assert all(owner.queue.message(State.QUE, i).is_dir() for i in (*few, *many))


def test_what_is_aborted_before_it_has_a_folder_never_gets_one(owner):
    one = opened(owner)
    ids = prepared(owner, one, 2)
    decisions.abort(owner.spool, one)
    assert not settled(owner.spool)
    assert not any(owner.queue.message(State.PREP, i).exists() for i in ids)
    assert owner.spool.live_count == 0


def test_the_folders_of_a_decision_follow_as_all_others_do(owner):
    one = opened(owner)
    ids = prepared(owner, one, 4)
    assert settled(owner.spool) == ids  # put off until the decision
    assert owner.spool.lag == owner.spool.lag_bytes == 0
    decisions.commit(owner.spool, one, ids[:3])
    assert owner.spool.lag == 4
    owner.spool.commit()
    assert not settled(owner.spool)
    assert all(owner.queue.message(State.QUE, one).is_dir() for one in ids[:3])
    assert not owner.queue.message(State.PREP, ids[3]).exists()


def test_lines_that_are_taken_again_change_nothing(owner):
    ready, first, second = opened(owner, "key"), opened(owner), opened(owner)
    decisions.commit(owner.spool, first, prepared(owner, first, 2))
    decisions.abort(owner.spool, second)
    prepared(owner, ready, 1)
    owner.stop()
    lines = [*Follower(owner.queue.journal_dir, Place()).read()]
    once, again_and_again = transactions.Transactions(), transactions.Transactions()
    for line in lines:
        once.take(line)
        for _ in range(3):
            again_and_again.take(line)
    for line in lines:
        again_and_again.take(line)
    assert len(once.by_id) == 3
    assert told_of(again_and_again) == told_of(once)


def told_of(txns):
    return [
        [txn.to_json() for txn in txns.by_id.values()],
        [txn.txn_id for txn in txns.open_ones()],
        [txn.txn_id for txn in txns._decided],
    ]
