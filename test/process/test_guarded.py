"""Guarded queues act with RQ's rights: who may give them orders, at which door, and how an
owner's is proved."""

import json
import os
from types import SimpleNamespace

import pytest
from harness.post import Post, notice_queue
from harness.queues import kept, running_queue, short
from harness.timers import past, timers
from harness.waiting import wait_until
from process.test_webhook import WEBHOOK

from rq import guarded
from rq.errors import NotPermitted
from rq.guarded import Sender
from rq.message import from_request
from rq.relay import handover
from rq.relay.task import Task

pytestmark = pytest.mark.process

OPS = "ops@example.org"
FAIL = "echo err it broke >&3"
EVERY = sorted(guarded.QUEUES)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="as root: another user's file"
)


def total(queue):
    return sum(queue.ok("detail")["counts"].values())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root whose guarded queues run nothing, and a queue `t` that runs param1."""
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def pulled(root):
    with running_queue(root, name="t", pull={}) as queue:
        yield queue


@pytest.fixture(scope="module", params=EVERY)
def order(request, root):
    with running_queue(root, name=request.param, num_workers=0) as queue:
        yield queue


def test_operators_may_send_and_a_script_s_copy_and_forward_are_refused(pulled, order):
    assert order.send(param1="x")
    before = total(order)
    forwarded = pulled.run(param1=f"echo forward {order.name} >&3")
    assert f"queue {order.name} {guarded.QUEUES[order.name].does}" in str(forwarded)
    assert "not from scripts" in str(forwarded)
    dup = f"echo dup 0-X-{order.name} >&3; read -r x <&4; echo $x; echo done >&3"
    copied = pulled.run(param1=dup)
    assert "not from scripts" in pulled.output(copied["msg_id"])
    assert total(order) == before


def test_what_the_holder_of_a_lease_copies_or_forwards_is_refused(root, order):
    name = f"pull-{order.name}"
    with running_queue(root, name=name, num_workers=0, pull={}) as queue:
        queue.send(param1="x")
        [lease] = queue.ok("lease", {"count": 1, "by": "w"})["leases"]
        token, dups = lease["token"], [{"dest": order.name}]
        said = {"finishes": [{"token": token, "word": "done", "dups": dups}]}
        assert "not from scripts" in str(queue.ok("finish", said))
        forward = {"token": token, "word": "forward", "dest": order.name}
        queue.ok("finish", {"finishes": [forward]})
        assert "not from scripts" in str(queue.ended(short(lease["message"]["msg_id"])))
        assert queue.ok("detail")["owed"] == 0


def test_a_copy_that_no_owner_owes_is_refused(pulled, order):
    msg_id = pulled.send(param1="x", due=4e9)
    before = total(order)
    copy = {"message": {"dest": order.name}, "queue": "t", "msg_id": msg_id}
    assert "it comes from scripts" in order.refused("take_copy", copy)
    relayed = {**copy, "_key": "relay/0123"}
    assert "it comes from a relay" in order.refused("take_copy", relayed)
    forged = {**copy, "_key": "0123abcd/1/0"}
    assert "queue t owes no such message" in order.refused("take_copy", forged)
    assert total(order) == before


@pytest.mark.parametrize("word", ["prep_message", "single_que"])
def test_no_other_door_takes_a_key_of_an_outbox(order, word):
    asked = {"dest": order.name, "_key": "0123abcd/1/0"}
    assert "under which owners deliver" in order.refused(word, asked)


def test_what_names_no_owner_or_one_that_does_not_answer_is_busy(pulled, order):
    """An owner of the version before names itself not; it will."""
    owed = {"dest": order.name, "_key": "0123abcd/1/0"}
    assert "ask again" in order.refused("create_message", owed)
    dead = pulled.root.queue("dead")
    dead.path.mkdir(exist_ok=True)
    dead.config.write_text("{}")
    by = {"messages": [owed], "owed_by": "dead"}
    assert "does not say whether it owes this" in order.refused("create_messages", by)
    gone = {"messages": [owed], "owed_by": "absent"}
    assert "there is no queue absent" in order.refused("create_messages", gone)
    path = {"messages": [owed], "owed_by": "../t"}
    assert "invalid characters" in order.refused("create_messages", path)


@needs_root
def test_a_deposit_of_another_user_goes_to_err_and_one_of_our_own_is_taken(order):
    for number, uid in enumerate((0, 65534)):
        place = order.root.queue(order.name).path / f"made.{number}"
        place.mkdir()
        (place / "msg").write_text(json.dumps({"dest": order.name, "param1": "x"}))
        for path in (place, place / "msg"):
            os.chown(path, uid, -1)
        before = order.ok("detail")["counts"]
        place.rename(order.root.queue(order.name).path / "new" / f"{number}")
        state = "err" if uid else "que"
        wait_until(lambda b=before, s=state: counted(order, s) == b[s] + 1)
    [*_, row] = order.ok("list", {"state": "err", "limit": 1})
    assert "not from producers" in str(order.get(row["msg_id"]))


def counted(queue, state):
    return queue.ok("detail")["counts"][state]


def test_the_relay_of_this_host_counts_as_its_sender(order):
    order.root.config.write_text(json.dumps({"host": "127.0.0.1", "port": 3333}))
    for more in ({}, {"force_remote": True}):
        fields = {"dest": f"http://localhost:3333/q/{order.name}", **more}
        message = from_request(fields, "20260102.0304.05.006.7", 0.0, "x")
        task = Task(order.root, order.root.path, message, "x")
        with pytest.raises(NotPermitted, match="not from a relay"):
            handover.run(task, None)


def test_a_timer_sends_only_where_operators_plan_work(order):
    order.root.timers.mkdir(exist_ok=True)
    message = {"dest": order.name, "param1": "x"}
    timer = order.root.timers / f"{order.name}.json"
    timer.write_text(json.dumps({"period": 86400, "msg": message}))
    before, site = total(order), SimpleNamespace(root=order.root)
    order.root.log.mkdir(exist_ok=True)
    with timers(site):
        if Sender.TIMER in guarded.QUEUES[order.name].takes:
            wait_until(lambda: total(order) == before + 1)
        else:
            error = wait_until(lambda: past(site, order.name).get("error"))
            assert "not from timers" in error
            assert total(order) == before
    timer.unlink()


def test_the_table_says_who_may():
    takes = {(q, s) for q, rule in guarded.QUEUES.items() for s in rule.takes}
    timers = {"cleaner", "spark-work"}
    for queue in (*EVERY, "rq_router", "mail"):
        for sender in Sender:
            may = queue not in guarded.QUEUES or (queue, sender) in takes
            always = sender in (Sender.OPERATOR, Sender.OWNER)
            assert may == (
                always
                or queue not in EVERY
                or (sender is Sender.TIMER and queue in timers)
            )


# ---- what an owner owes


def test_a_forged_notice_is_refused_and_keeps_no_key_from_the_true_one(tmp_path):
    """Before its owner could deliver it, a message comes under its key."""
    post = Post(tmp_path)
    with running_queue(tmp_path, name="t", on_err=OPS) as queue:
        queue.run(param1=FAIL)
        [owed] = queue.ok("owed")
        [true] = queue.ok("owes", {"keys": [owed["key"]]})
        forged = {**true["message"], "param1": "mail:eve@example.org"}
        with kept(notice_queue(tmp_path)) as notice:
            for message in (forged, {**forged, "param1": "queue:./cleaner"}):
                asked = {
                    "messages": [{**message, "_key": owed["key"]}],
                    "owed_by": "t",
                }
                # Once the true one is there, its id is all that is to be had.
                said = str(notice.ask("create_messages", asked))
                assert "owes no such message" in said or total(notice) == 1, said
            wait_until(post.raw)
            assert [letter["To"] for letter in post.letters()] == [OPS]
            wait_until(lambda: queue.ok("detail")["owed"] == 0)
            assert total(notice) == 1


def test_a_delivery_that_is_asked_again_is_one_though_it_is_owed_no_more(tmp_path):
    Post(tmp_path)
    with running_queue(tmp_path, name="t", on_err=OPS) as queue:
        queue.run(param1=FAIL)
        [owed] = queue.ok("owed")
        [true] = queue.ok("owes", {"keys": [owed["key"]]})
        with kept(notice_queue(tmp_path)) as notice:
            wait_until(lambda: queue.ok("detail")["owed"] == 0)
            again = {"messages": [{**true["message"], "_key": owed["key"]}]}
            [row] = notice.ok("create_messages", again)
            assert row[0] == "ok"
            assert total(notice) == 1


def test_an_operator_moves_a_message_to_a_guarded_queue(tmp_path):
    with (
        running_queue(tmp_path, name="t", num_workers=0) as queue,
        running_queue(tmp_path, name="cleaner", num_workers=0) as cleaner,
    ):
        msg_id = queue.send(param1="x")
        queue.ok("move_message", {"msg_id": msg_id, "to": "cleaner"})
        wait_until(lambda: counted(cleaner, "que") == 1)


# ---- what the scripts make of a message


@pytest.mark.parametrize(
    ("whom", "queue", "why"),
    [
        ("queue:./cleaner", "t", "queue name has invalid characters"),
        ("queue:/tmp/evil", "t", "queue name has invalid characters"),
        ("queue:cleaner", "t", "takes no notices"),
        ("queue:webhook", "t", "takes no notices"),
        ("mail:-oQ/tmp", "t", "is no address"),
        ("mail:a@b\nBcc: c@d", "t", "is no address"),
        ("mail:eve@example.org", "t", "do not name it now"),
        ("http://a b/", "t", "no URL"),
        ("ftp://h/", "t", "neither mail"),
        (f"mail:{OPS}", "../t", "queue name has invalid characters"),
        (f"mail:{OPS}", "/abs/t", "queue name has invalid characters"),
        (f"mail:{OPS}", "none", "there is no queue none any more"),
    ],
)
def test_a_notice_is_parsed_as_what_it_is_before_anything_is_done(
    told, whom, queue, why
):
    post, notice = told
    row = notice.run(param1=whom, param2=queue, param3="err", param4='{"at": 1}')
    assert row["state"] == "err"
    assert why in str(row["result"]), row
    assert post.raw() == []


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    path = tmp_path_factory.mktemp("told")
    post = Post(path)
    with (
        kept(notice_queue(path)) as notice,
        running_queue(path, name="t", on_err=OPS),
    ):
        yield post, notice


def test_a_story_s_message_is_an_id_and_no_path(told):
    _, notice = told
    story = json.dumps({"at": 1, "msg_id": "../../x"})
    row = notice.run(param1=f"mail:{OPS}", param2="t", param3="err", param4=story)
    assert "not a message id" in str(row["result"])


def test_who_is_removed_from_the_settings_before_it_is_brought_is_told_nothing(
    tmp_path,
):
    post = Post(tmp_path)
    two = [OPS, "second@example.org"]
    with running_queue(tmp_path, name="t", on_err={"mail": two, "every": 0}) as queue:
        queue.run(param1=FAIL)
        queue.configure(on_err={"mail": two[1:], "every": 0})
        with kept(notice_queue(tmp_path)):
            wait_until(post.raw)
            assert [letter["To"] for letter in post.letters()] == [two[1]]
    with running_queue(tmp_path, name="u", on_err=OPS) as queue:
        queue.run(param1=FAIL)
        queue.configure(on_err=None)
        notice = notice_queue(tmp_path)
        with kept(notice):
            wait_until(lambda: counted(notice, "err") == 1)
            [row] = notice.ok("list", {"state": "err", "limit": 1})
            assert "the settings of queue u do not name it now" in row["status"]
            assert len(post.raw()) == 1


def test_a_webhook_s_address_and_id_are_parsed_first(tmp_path):
    settings = json.loads((WEBHOOK.parent / "config.json").read_text())
    with running_queue(tmp_path, WEBHOOK, "webhook", nice=0, **settings) as queue:
        for fields, why in (
            ({"param1": "file:///etc/passwd"}, "no URL that begins with"),
            ({"param1": "http://h/", "param3": "a.b"}, "no id of a webhook"),
        ):
            row = queue.run(param2="{}", **fields)
            assert why in str(row["result"])
