"""Guarded queues act with RQ's rights: how an owner's order is proved, and what their scripts
make of a message. Who may give orders at which door: test_guarded_doors."""

import json

import pytest
from harness.post import Post, notice_queue
from harness.queues import kept, running_queue
from harness.waiting import wait_until
from process.test_webhook import WEBHOOK

from rq.message import guarded

pytestmark = pytest.mark.process

OPS = "ops@example.org"
FAIL = "echo err it broke >&3"
EVERY = sorted(guarded.QUEUES)


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


def test_a_copy_that_no_owner_owes_is_refused(pulled, order):
    msg_id = pulled.send(param1="x", due=4e9)
    before = total(order)
    copy = {"message": {"dest": order.name}, "queue": "t", "msg_id": msg_id}
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


def counted(queue, state):
    return queue.ok("detail")["counts"][state]


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
