"""One thing done to all messages that a filter means, in a real queue process."""

import time

import pytest
from harness.kills import site_at
from harness.waiting import wait_until

pytestmark = pytest.mark.process
BAD = '[ -e "$RQ_ROOT/good" ] || { echo "err the $RQ_PARAM2 is gone" >&3; exit 0; }\n'


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.act("bad", BAD)
        yield site


@pytest.fixture
def queue(site):
    return site.queue(num_workers=5).start()


def failed(queue, number, what="disk"):
    """Return messages that have failed."""
    ids = [queue.submit("bad", param2=what) for _ in range(number)]
    for msg_id in ids:
        queue.until(msg_id, "err")
    return ids


def chosen(queue, action="retry", **filter_):
    asked = {"action": action, "filter": {"state": "err", **filter_}, "dry_run": True}
    return queue.ok("bulk", asked)


def begun(queue, action="retry", to=None, **filter_):
    meant = {"state": "err", **filter_}
    asked = {"action": action, "filter": meant, "to": to, "who": "anna"}
    return queue.ok("bulk", asked)["bulk"]


def show(queue, bulk):
    return queue.ok("show_bulk", {"bulk": bulk})


def ended(queue, bulk):
    return wait_until(lambda: (view := show(queue, bulk))["state"] != "open" and view)


def lines(queue, event):
    return [line for line in queue.events() if line.get("ev") == event]


def test_all_that_failed_run_again_once(site, queue):
    ids = failed(queue, 12)
    (site.root.path / "good").touch()
    view = ended(queue, begun(queue))
    assert (view["state"], view["messages"], view["changed"]) == ("done", 12, 12)
    assert view["looked_at"] == 12
    assert view["by"] == "anna"
    for msg_id in ids:
        assert queue.until(msg_id, "done")["attempt"] == 2
    assert len(site.ran("start")) == 24
    texts = {line["text"] for line in lines(queue, "requeue")}
    assert texts == {"by anna"}
    queue.prove()


def test_a_dry_run_counts_and_changes_nothing(queue):
    ids = failed(queue, 12)
    counted = chosen(queue)
    assert (counted["messages"], counted["ids"]) == (12, sorted(ids)[:10])
    assert chosen(queue, "delete", state="que")["ids"] == []
    assert {queue.state(msg_id) for msg_id in ids} == {"err"}
    assert queue.ok("list_bulks") == []
    queue.prove()


def test_only_what_the_filter_means_is_changed(queue):
    disks, nets = failed(queue, 3), failed(queue, 2, "net")
    assert chosen(queue, text="NET is")["messages"] == 2
    assert chosen(queue, param2="net")["messages"] == 2
    assert chosen(queue, param2="ne")["messages"] == 0
    cause = queue.show(nets[0])["result"]["cause"]
    assert chosen(queue, cause=cause)["messages"] == 5
    assert chosen(queue, before=time.time() - 600)["messages"] == 0
    assert chosen(queue, after=time.time() - 600)["messages"] == 5
    ended(queue, begun(queue, "delete", text="net"))
    assert [queue.ask("get_message", {"msg_id": one})[0] for one in nets] == [
        "fail"
    ] * 2
    assert {queue.state(msg_id) for msg_id in disks} == {"err"}
    queue.prove(gone=tuple(nets))


def test_a_failure_that_came_after_its_beginning_is_not_meant(site, queue):
    """The set is that of the beginning, whatever comes while a bulk is at work."""
    failed(queue, 3)
    site.act("slow", "hold\n" + BAD)
    late = queue.submit("slow", param2="disk")
    queue.until_started(late)
    bulk = begun(queue, "ack")
    assert ended(queue, bulk)["messages"] == 3
    site.go()
    queue.until(late, "err")
    assert "acknowledged" not in queue.show(late)
    queue.prove()


def test_errors_are_acknowledged_and_removed(queue):
    ids = failed(queue, 5)
    ended(queue, begun(queue, "ack"))
    assert all(queue.show(msg_id)["acknowledged"] for msg_id in ids)
    assert chosen(queue)["messages"] == 0
    assert chosen(queue, state="dismissed")["messages"] == 5
    ended(queue, begun(queue, "delete", state="dismissed"))
    queue.prove(gone=tuple(ids))


def test_what_waits_is_removed_and_what_runs_is_ended(site, queue):
    site.act("hold", "hold\n")
    running = [queue.submit("hold") for _ in range(5)]
    for msg_id in running:
        queue.until_started(msg_id)
    waiting = [queue.submit("hold") for _ in range(4)]
    assert ended(queue, begun(queue, "cancel", state="que"))["changed"] == 4
    bulk = begun(queue, "cancel", state="run")
    assert ended(queue, bulk)["changed"] == 5
    steps = [line for line in lines(queue, "bulk") if line["is"] == "step"]
    assert {line["msg"] for line in steps} == set(running)
    assert [(line["bulk"], line["at"]) for line in steps] == [
        (bulk, n) for n in range(5)
    ]
    for msg_id in running:
        assert queue.until(msg_id, "err")["result"]["job_status"] == "cancelled by anna"
    queue.prove(gone=tuple(waiting))


def test_what_cannot_be_changed_stays_and_is_named(queue):
    """Here a message of a transaction, which goes with the others or not at all."""
    txn = queue.ok("open_txn", {})["txn"]
    asked = {"txn": txn, "messages": [{"dest": "t", "due": 4e9}]}
    [held] = queue.ok("prepare_txn", asked)
    free = queue.prepare()
    view = ended(queue, begun(queue, "delete", state="prep"))
    assert (view["state"], view["messages"], view["changed"]) == ("done", 2, 1)
    assert view["why"].startswith(f"{held} stays as it is: transaction ")
    assert queue.state(held) == "prep"
    assert queue.ask("get_message", {"msg_id": free})[0] == "fail"
    queue.ok("abort_txn", {"txn": txn})
    queue.prove()


def test_a_bulk_can_be_cancelled(queue):
    """What it has changed stays so; the rest stays as it was."""
    ids = failed(queue, 3)
    bulk = begun(queue, "ack")
    view = queue.ok("cancel_bulk", {"bulk": bulk})
    assert view["state"] in ("cancelled", "done")
    assert queue.ok("cancel_bulk", {"bulk": bulk}) == view
    seen = [one for one in ids if "acknowledged" in queue.show(one)]
    assert len(seen) == view["changed"]
    wait_until(lambda: list(queue.dir.journal.glob("bulk-*")) == [])
    queue.prove()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "action is None, not one of retry, ack, unack, hold, "),
        ({"action": "hug", "filter": {"state": "err"}}, "action is 'hug'"),
        ({"action": "retry"}, "a filter is a JSON object"),
        ({"action": "retry", "filter": {"state": "done"}}, "retry is for messages in"),
        ({"action": "ack", "filter": {"state": "err", "x": 1}}, "no field x"),
    ],
)
def test_what_is_no_bulk_is_refused(queue, asked, said):
    word, text = queue.ask("bulk", asked)
    assert (word, said in text) == ("fail", True), text


def test_no_bulk_by_an_id_that_was_never_given(queue):
    assert "no bulk x" in queue.ask("show_bulk", {"bulk": "x"})[1]
    assert "lacking 'bulk'" in queue.ask("cancel_bulk", {})[1]


def test_an_acknowledgement_is_taken_back(queue):
    ids = failed(queue, 4)
    ended(queue, begun(queue, "ack"))
    assert queue.ok("reopen_message", {"msg_id": ids[0]}) == "msg is in err again"
    assert queue.ask("reopen_message", {"msg_id": ids[0]})[0] == "fail"
    assert ended(queue, begun(queue, "unack", state="dismissed"))["changed"] == 3
    assert not any("acknowledged" in queue.show(msg_id) for msg_id in ids)
    assert queue.ask("num_messages")["err"] == 4
    queue.prove()


def test_what_waits_gets_another_due(queue):
    later = [queue.submit(due=4e9) for _ in range(3)]
    now = time.time()
    assert ended(queue, begun(queue, "due", state="que", to=5e9))["changed"] == 3
    assert {queue.show(msg_id)["due"] for msg_id in later} == {5e9}
    queue.ok("set_message", {"msg_id": later[0], "due": now})
    queue.until(later[0], "done")
    assert ended(queue, begun(queue, "due", state="que", to=now))["changed"] == 2
    for msg_id in later[1:]:
        queue.until(msg_id, "done")
    queue.prove()


@pytest.fixture
def other(site, queue):
    return site.queue("other").start()


def moved_to(other, number):
    """Return what came to another queue, by the message that it was."""
    wait_until(lambda: len(other.ok("list", {"state": "done", "limit": 99})) == number)
    rows = other.ok("list", {"state": "done", "limit": 99})
    came = [other.show(row["msg_id"]) for row in rows]
    return {row["orig_msg_id"].rpartition("/")[2]: row for row in came}


def test_what_failed_and_what_waits_goes_on_in_another_queue_once(site, queue, other):
    bad = failed(queue, 3)
    waiting = queue.submit(due=4e9, param3="x")
    (site.root.path / "good").touch()
    queue.ok("move_message", {"msg_id": waiting, "to": "other", "who": "anna"})
    [came] = wait_until(lambda: other.ok("list", {"state": "que", "limit": 9}))
    assert other.show(came["msg_id"])["due"] == 4e9
    other.ok("run_message", {"msg_id": came["msg_id"]})
    ended(queue, begun(queue, "move", to="other"))
    there = moved_to(other, 4)
    assert there.keys() == {*bad, waiting}
    assert there[waiting]["param3"] == "x"
    for msg_id in (*bad, waiting):
        shown = queue.show(msg_id)
        assert shown["state"] == "relayed"
        assert shown["result"]["cause"] == "moved"
        assert shown["result"]["job_status"] == "moved to other by anna"
        assert shown["story"]["what"] == "It was moved to another queue."
    wait_until(lambda: queue.ok("owed", {}) == [])
    queue.prove()


def test_a_held_message_is_not_moved_to_where_it_would_start(queue, other):
    msg_id = queue.submit(due=4e9)
    queue.ok("hold_message", {"msg_id": msg_id, "who": "ann"})
    wanted = {"msg_id": msg_id, "to": "other"}
    assert "msg is held: release it" in queue.ask("move_message", wanted)[1]
    queue.ok("release_message", {"msg_id": msg_id, "who": "ann"})
    queue.ok("move_message", wanted)
    assert wait_until(lambda: other.ok("list", {"state": "que", "limit": 9}))
    queue.prove()


def test_attachments_go_along_to_another_queue(site, queue, other):
    msg_id = queue.prepare(due=4e9)
    path = site.root.path / "note"
    path.write_text("remember")
    queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(path)})
    queue.ok("commit_message", {"msg_id": msg_id})
    queue.ok("move_message", {"msg_id": msg_id, "to": "other"})
    [came] = wait_until(lambda: other.ok("list", {"state": "que", "limit": 9}))
    assert "note" in other.show(came["msg_id"])["_attachments"]
    queue.prove()


@pytest.mark.parametrize(
    ("to", "said"),
    [
        (None, "move needs 'to', the name of a queue"),
        ("t", "queue t is where it is"),
        ("nowhere", "couldn't connect to queue - nowhere"),
    ],
)
def test_nothing_is_moved_where_nobody_takes_it(queue, to, said):
    [msg_id] = failed(queue, 1)
    filter_ = {"state": "err"}
    for command, asked in (
        ("bulk", {"action": "move", "filter": filter_, "to": to}),
        ("move_message", {"msg_id": msg_id, "to": to}),
    ):
        word, text = queue.ask(command, asked)
        assert (word, said in text) == ("fail", True), text
    assert queue.state(msg_id) == "err"


def test_what_is_moved_goes_in_groups(queue, other):
    ids = [queue.submit(due=4e9) for _ in range(300)]
    ended(queue, begun(queue, "move", state="que", to="other"))
    wait_until(lambda: other.ask("num_messages")["que"] == 300)
    came = lines(other, "commit")
    assert len(came) == 300
    assert len({line["g"] for line in came}) < 30
    origins = [line["message"]["orig_msg_id"].rpartition("/")[2] for line in came]
    assert origins == sorted(ids)
    wait_until(lambda: queue.ok("detail")["owed"] == 0)


def test_nothing_is_moved_to_a_queue_that_is_paused(site, queue, other):
    [msg_id] = failed(queue, 1)
    site.root.pause("other").touch()
    assert queue.ask("move_message", {"msg_id": msg_id, "to": "other"})[0] == "fail"
    assert queue.state(msg_id) == "err"


def test_what_waits_is_held_released_and_gets_another_priority(queue):
    ids = [queue.submit(due=4e9) for _ in range(3)]
    queue.ok("hold_message", {"msg_id": ids[0], "who": "bea"})
    view = ended(queue, begun(queue, "hold", state="que", to="a freeze"))
    assert (view["messages"], view["changed"]) == (2, 2)
    assert chosen(queue, "hold", state="que")["messages"] == 0
    assert chosen(queue, "release", state="que")["ids"] == sorted(ids)
    held = [queue.show(msg_id)["held"] for msg_id in ids]
    assert [hold["by"] for hold in held] == ["bea", "anna", "anna"]
    assert held[1]["why"] == "a freeze"
    assert ended(queue, begun(queue, "release", state="que"))["changed"] == 3
    assert ended(queue, begun(queue, "priority", state="que", to=7))["changed"] == 3
    assert {queue.show(msg_id)["priority"] for msg_id in ids} == {7}
    queue.restart()
    assert {queue.show(msg_id)["priority"] for msg_id in ids} == {7}
    assert not any(queue.show(msg_id).get("held") for msg_id in ids)
    queue.prove()


@pytest.mark.parametrize(
    ("action", "to"),
    [("due", "soon"), ("due", None), ("priority", 10), ("hold", 5), ("release", "x")],
)
def test_what_it_is_to_be_done_with_is_checked(queue, action, to):
    asked = {"action": action, "filter": {"state": "que"}, "to": to}
    word, text = queue.ask("bulk", asked)
    assert (word, "'to'" in text) == ("fail", True), text


def test_a_message_is_sent_again_with_other_fields_and_names_the_old_one(site, queue):
    [bad] = failed(queue, 1)
    (site.root.path / "good").touch()
    changes = {"param2": "mended", "param1": None}
    url = queue.ok("edit_message", {"msg_id": bad, "changes": changes})
    new = url.rpartition("/")[2]
    shown = queue.until(new, "done")
    assert (shown["param2"], shown.get("param1"), shown["cloned_from"]) == (
        "mended",
        None,
        bad,
    )
    assert queue.show(bad)["acknowledged"]
    queue.prove()


@pytest.mark.parametrize(
    "changes", [None, {}, {"dest": "x"}, {"attempt": 3}, {"hold": "wait"}, [1]]
)
def test_what_cannot_be_edited_is_refused(queue, changes):
    [bad] = failed(queue, 1)
    word, _ = queue.ask("edit_message", {"msg_id": bad, "changes": changes})
    assert word == "fail"
    assert queue.ask("num_messages")["que"] == 0
    assert "acknowledged" not in queue.show(bad)


def test_those_with_a_unique_key_are_meant(site):
    queue = site.queue("keyed", unique={"params": [], "scope": "queued"}).start()
    ids = [queue.submit(due=4e9, unique_key=key) for key in ("a", "b")]
    view = ended(queue, begun(queue, "delete", state="que", key="a"))
    assert (view["messages"], view["changed"]) == (1, 1)
    assert queue.state(ids[1]) == "que"
    queue.prove(gone=(ids[0],))


def test_two_bulks_at_once_share_no_message(site, queue):
    """The second leaves alone what the first has changed."""
    ids = failed(queue, 6)
    first = begun(queue, "ack")
    second = queue.ask(
        "bulk", {"action": "delete", "filter": {"state": "err"}, "who": "bea"}
    )[1]["bulk"]
    changed = [ended(queue, bulk)["changed"] for bulk in (first, second)]
    assert sum(changed) == 6
    gone = [
        one for one in ids if queue.ask("get_message", {"msg_id": one})[0] == "fail"
    ]
    assert len(gone) == changed[1]
    queue.prove(gone=tuple(gone))


def test_failures_are_counted_by_cause_and_group_and_one_group_is_changed(queue):
    failed(queue, 3), failed(queue, 2, "net")
    wanted = {"dry_run": True, "filter": {"state": "err"}, "groups": True}
    counted = queue.ok("bulk", wanted)  # no action is needed to count
    assert (counted["messages"], counted["grouped"]) == (5, 5)
    assert sum(counted["causes"].values()) == 5
    sizes = [row["messages"] for row in counted["groups"]]
    assert sizes == sorted(sizes, reverse=True)
    alike = counted["groups"][-1]
    ended(queue, begun(queue, "delete", group=alike["group"]))
    left = queue.ok("bulk", wanted)["groups"]
    assert left == counted["groups"][:-1]
    assert queue.ask("num_messages")["err"] == 5 - alike["messages"]
