"""What the index answers, of lines that were read."""

import time

import pytest
from harness.index import Lines, bare_root, fill, message_id

from rq.errors import BadInput, NoSuchQueue, Refused, Unreachable
from rq.index.questions import Index
from rq.index.rows import MOST_HITS, ListQuestion, RunsQuestion, SearchQuestion
from rq.words.states import State

ONE, TWO, THREE, FOUR = map(message_id, range(4))
SEEN = frozenset({"mail"})


@pytest.fixture
def root(tmp_path):
    return bare_root(tmp_path)


@pytest.fixture
def filled(root):
    mail, bank = Lines("mail"), Lines("bank", time.time() - 1800)
    mail.accept(ONE, param1="order-13992", param2="Grüße", src="shop")
    mail.run(ONE, ran=4.0)
    mail.accept(TWO, key="root\ttimer/nightly/1700000000", param1="order-7")
    mail.fail(TWO, text="status 3 after 4 s")
    bank.accept(THREE, param1="order-8", unique_key="order-13992-b")
    bank.fail(THREE, text="status 9 after 70 s")
    bank.accept(FOUR, param3="waits")
    fill(root, mail, bank)
    return root


def found_ids(root, *words, visible=None, **more):
    with Index.at(root) as index:
        hits = index.search(SearchQuestion(words=words, **more), visible)
    assert hits.count == len(hits.rows) or hits.more
    return [hit.msg_id for hit in hits.rows]


def runs_of(root, visible=None, **more):
    with Index.at(root) as index:
        return index.runs(RunsQuestion(since=time.time() - 86400, **more), visible)


def test_it_says_when_it_is_off_or_not_there(root):
    with pytest.raises(Unreachable, match="not there yet"):
        Index.at(root)
    root.config.write_text('{"host": "127.0.0.1", "port": 3333, "index": false}')
    with pytest.raises(Refused, match="off"):
        Index.at(root)


def test_it_says_how_far_it_has_read(filled):
    with Index.at(filled) as index:
        fresh = index.freshness()
    assert time.time() - fresh.as_of < 60
    assert (fresh.read, fresh.is_building) == (1.0, False)


def test_any_part_of_a_word_is_enough(filled):
    assert found_ids(filled, "13992") == [THREE, ONE]
    assert found_ids(filled, "GRÜSSE"[:3]) == [ONE]
    assert found_ids(filled, "SHOP") == [ONE]
    assert found_ids(filled, THREE[-11:]) == [THREE]
    assert found_ids(filled, "nowhere") == []


def test_words_may_stand_in_what_was_sent_and_in_what_was_said(filled):
    assert found_ids(filled, "order-7", "status") == [TWO]
    assert found_ids(filled, "status", "order-7") == [TWO]
    assert found_ids(filled, "status", "after") == [THREE, TWO]
    assert found_ids(filled, "status", "order-9") == []


def test_a_search_is_narrowed(filled):
    assert found_ids(filled, "order", queue="mail") == [TWO, ONE]
    assert found_ids(filled, "order", state="err") == [THREE, TWO]
    assert found_ids(filled, state="que") == [FOUR]
    assert found_ids(filled, since=time.time() - 1900) == [FOUR, THREE]
    assert found_ids(filled, "order", is_descending=False) == [ONE, TWO, THREE]
    assert found_ids(filled, "order", order="queue", is_descending=False) == [
        *(THREE, TWO, ONE),
    ]
    assert found_ids(filled, "order", limit=1, offset=1) == [TWO]


def test_a_hit_says_how_the_message_stands(filled):
    with Index.at(filled) as index:
        hit = index.search(SearchQuestion(words=("order-7",)), None).rows[0]
    assert (hit.queue, hit.state, hit.cause, hit.timer) == (
        "mail",
        "err",
        "exit",
        "nightly",
    )
    assert hit.params == {"param1": "order-7"}
    assert hit.group.startswith("exit-")


def test_words_that_cannot_be_looked_for_are_refused(filled):
    with pytest.raises(BadInput, match="too short"):
        found_ids(filled, "ab")
    with pytest.raises(BadInput, match="sorted by"):
        found_ids(filled, "abc", order="m.id; DROP TABLE messages")
    assert found_ids(filled, 'a"b', "NOT", "xyz*") == []


def test_runs_and_their_sums(filled):
    runs = runs_of(filled)
    assert [run.msg_id for run in runs.rows] == [THREE, TWO, ONE]
    assert (runs.sums.runs, runs.sums.failed, runs.more) == (3, 2, False)
    assert (runs.sums.slowest.msg_id, runs.sums.slowest.ran) == (ONE, 4.0)
    assert runs.rows[2].waited == 0.5
    assert runs.rows[2].ended == pytest.approx(runs.rows[2].started + 4)


def test_runs_are_narrowed(filled):
    assert [run.msg_id for run in runs_of(filled, timer="nightly").rows] == [TWO]
    assert runs_of(filled, is_failed=True).sums.runs == 2
    assert [run.msg_id for run in runs_of(filled, order="ran", limit=1).rows] == [ONE]
    assert runs_of(filled, limit=2).more
    assert [run.msg_id for run in runs_of(filled, is_slow=True, queue="mail").rows] == [
        ONE
    ]
    assert runs_of(filled, until=time.time() - 7200).rows == ()


def test_runs_say_who_sent_them(root):
    mail = Lines("mail")
    mail.accept(ONE, by="ann")
    mail.run(ONE, "retry", "que", "exit")
    mail.run(ONE)
    mail.accept(TWO, by="bob")
    mail.fail(TWO)
    mail.accept(THREE, by="ann")
    mail.line(THREE, "claim", "run")
    fill(root, mail)
    assert [run.by for run in runs_of(root).rows] == ["ann", "bob", "ann", "ann"]
    of_ann = runs_of(root, by="ann")
    assert [run.msg_id for run in of_ann.rows] == [THREE, ONE, ONE]
    assert (of_ann.sums.runs, of_ann.sums.failed) == (3, 0)
    sorted_by = [run.by for run in runs_of(root, order="by").rows]
    assert sorted_by == ["bob", "ann", "ann", "ann"]


def test_what_a_person_has_ended_is_no_failure(root):
    mail = Lines("mail")
    for msg_id, cause in ((ONE, "exit"), (TWO, "cancelled")):
        mail.accept(msg_id)
        mail.fail(msg_id, cause)
    fill(root, mail)
    every = runs_of(root)
    assert [run.outcome for run in every.rows] == ["cancelled", "err"]
    for sums in (every.sums, runs_of(root, is_descending=False).sums):
        assert (sums.runs, sums.failed) == (2, 1)
    assert [run.msg_id for run in runs_of(root, is_failed=True).rows] == [ONE]


def test_what_runs_now_is_a_run(root):
    lines = Lines("mail", time.time() - 60)
    lines.accept(ONE)
    lines.line(ONE, "claim", "run")
    fill(root, lines)
    (run,) = runs_of(root).rows
    assert (run.outcome, run.ended) == ("running", None)
    assert 50 < run.ran < 70


def test_failures_are_grouped(filled):
    with Index.at(filled) as index:
        (group,) = index.failures(None, None)
    assert (group.count, group.queues) == (2, {"mail": 1, "bank": 1})
    assert (group.cause, group.wording) == ("exit", "status # after # s")
    assert group.sample == ("bank", THREE)
    assert sum(group.trend) == 2
    assert len(group.trend) == 24


def test_what_was_acknowledged_is_no_failure(root):
    lines = Lines("mail")
    lines.accept(ONE)
    lines.fail(ONE)
    lines.line(ONE, "dismiss", "dismissed")
    fill(root, lines)
    with Index.at(root) as index:
        assert index.failures(None, None) == ()


def test_nothing_tells_of_queues_that_are_hidden(filled):
    """Not their rows, nor their sums, nor that they are there."""
    assert found_ids(filled, "order", visible=SEEN) == [TWO, ONE]
    runs = runs_of(filled, visible=SEEN)
    assert (runs.sums.runs, runs.sums.failed) == (2, 1)
    assert {run.queue for run in runs.rows} == {"mail"}
    with Index.at(filled) as index:
        (group,) = index.failures(None, SEEN)
        assert (group.count, sum(group.trend)) == (1, 1)
        assert (group.queues, group.sample) == ({"mail": 1}, ("mail", TWO))
        hours = index.hours(None, 0, time.time(), SEEN)
        assert {hour.part["queue"] for hour in hours} == {"mail"}
        for question in (
            lambda: index.failures("bank", SEEN),
            lambda: index.durations("bank", 0, SEEN),
            lambda: index.hours("bank", 0, 1, SEEN),
        ):
            with pytest.raises(NoSuchQueue):
                question()


def test_durations_and_hours(filled):
    with Index.at(filled) as index:
        durations = index.durations("mail", 0)
        assert (durations.p50, durations.p95, durations.count) == (4.0, 4.0, 2)
        assert index.durations("nowhere", 0).count == 0
        hours = index.hours("mail", 0, time.time())
    total = {
        name: sum(hour.part[name] for hour in hours) for name in ("accepted", "err")
    }
    assert total == {"accepted": 2, "err": 1}
    assert sum(hour.part["causes"].get("exit", 0) for hour in hours) == 1


def test_what_a_person_deletes_is_not_found(root):
    lines = Lines("mail")
    lines.accept(ONE, param1="secret", by="secret sender")
    lines.fail(ONE, text="secret text")
    fill(root, lines)
    assert found_ids(root, "secret") == [ONE]
    lines.lines.clear()
    lines.line(ONE, "discard", "gone")
    fill(root, lines)
    assert found_ids(root, "secret") == []
    assert found_ids(root, ONE) == []
    (run,) = runs_of(root).rows
    assert (run.outcome, run.text) == ("err", None)
    assert b"secret" not in b"".join(
        bytes(str(row), "utf-8") for row in rows_of(root, "messages", "runs")
    )


def rows_of(root, *tables):
    with Index.at(root) as index:
        return [
            row
            for table in tables
            for row in index._base.execute(f"SELECT * FROM {table}")
        ]


def test_hidden_params_are_not_kept(root):
    lines = Lines("mail")
    lines.accept(ONE, param1="secret", param2="open")
    origin = "http://127.0.0.1:3333/q/mail/" + ONE
    copy, webhook = Lines("bank"), Lines("webhook")
    copy.accept(TWO, param1="secret", param3="copied", orig_msg_id=origin)
    webhook.accept(THREE, param1="secret", param3="posted")
    fill(root, lines, copy, webhook, hides={"mail": frozenset({"param1"})})
    assert found_ids(root, "secret") == []
    assert found_ids(root, "open") == [ONE]
    assert found_ids(root, "copied") == [TWO]
    assert found_ids(root, "posted") == []


def test_hits_are_counted_up_to_a_number(root):
    lines = Lines("mail")
    for number in range(MOST_HITS + 5):
        lines.accept(message_id(number), param1="same")
    fill(root, lines)
    with Index.at(root) as index:
        hits = index.search(SearchQuestion(words=("same",), limit=3), None)
        assert (len(hits.rows), hits.count, hits.more) == (3, MOST_HITS, True)
        last = index.search(
            SearchQuestion(words=("same",), limit=3, order="msg_id"), None
        )
        assert last.rows[0].msg_id == message_id(MOST_HITS + 4)


def test_messages_of_a_transaction_count_when_it_is_decided(root):
    lines = Lines("mail")
    for msg_id in (ONE, TWO):
        lines.line(
            msg_id, "prepare", "prep", message={"msg_id": msg_id, "param1": "abc"}
        )
    fill(root, lines)
    assert found_ids(root, "abc") == []
    lines.lines.clear()
    decision = {"seq": 9, "ts": int(lines.now * 1e6), "ev": "commit", "state": "que"}
    lines.lines.append({**decision, "was": "prep", "msgs": [ONE, TWO]})
    fill(root, lines)
    assert sorted(found_ids(root, "abc")) == [ONE, TWO]
    assert rows_of(root, "prepared") == []


def test_a_queue_is_listed_by_how_long_its_messages_ran(root):
    mail, bank = Lines("mail"), Lines("bank")
    for msg_id, ran in ((ONE, 4.0), (TWO, 9.0), (THREE, 1.0)):
        mail.accept(msg_id)
        mail.run(msg_id, ran=ran)
    bank.accept(FOUR)
    bank.run(FOUR, ran=99.0)
    fill(root, mail, bank)
    ask = {"queue": "mail", "state": State.DONE}
    with Index.at(root) as index:
        for order, ids in (("ran", (TWO, ONE, THREE)), ("ended", (THREE, TWO, ONE))):
            assert index.listed(ListQuestion(order=order, **ask), None) == ids
            up = ListQuestion(order=order, is_descending=False, **ask)
            assert index.listed(up, None) == ids[::-1]
        part = ListQuestion(order="ran", limit=1, offset=1, **ask)
        assert index.listed(part, frozenset({"mail"})) == (ONE,)
        with pytest.raises(NoSuchQueue):
            index.listed(part, frozenset({"bank"}))
        with pytest.raises(BadInput, match="sorted by one of"):
            index.listed(ListQuestion(order="colour", **ask), None)
