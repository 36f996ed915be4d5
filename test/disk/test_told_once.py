"""What a message's end tells to many is stored once, wherever it is stored."""

import pytest
from harness.spool import Owner

from rq.spool import outbox
from rq.words.states import Event

STORY = '{"told":"once"}'
OTHER = '{"told":"to another"}'
URLS = [f"http://h/{number}" for number in range(10)]


def to_webhook(url, story=STORY):
    params = {"param1": url, "param2": story, "param3": f"msg_{url}"}
    return {"dest": "webhook", "message": {"dest": "webhook", **params}}


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path / "q")
    one.open()
    yield one
    if one.is_open:
        one.crash()


def stored(path):
    """Return how often the story stands in a file."""
    return path.read_bytes().count(STORY.replace('"', '\\"').encode())


def ended(owner):
    """Let a message end that owes all, and a copy to another queue."""
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    copy = {"dest": "b", "message": {"dest": "b", "param1": "x"}}
    out = [*map(to_webhook, URLS), copy, to_webhook("http://h/other", OTHER)]
    owner.end(msg_id, Event.FINISH, out=out)
    owner.spool.commit()
    return [one["message"] for one in out]


def owed(owner):
    return [one.message for one in owner.spool.owed.values()]


def test_a_line_holds_a_story_once_and_every_receiver_is_told_all_of_it(owner):
    wanted = ended(owner)
    keys = [one.key for one in owner.spool.owed.values()]
    assert owed(owner) == wanted
    [segment] = [i for i in owner.queue.journal.iterdir() if i.name[0].isdigit()]
    assert stored(segment) == 1
    owner.crash()
    owner.open()
    assert owed(owner) == wanted
    assert [one.key for one in owner.spool.owed.values()] == keys
    assert len({id(one["param2"]) for one in owed(owner)[:10]}) == 1, "in memory, too"


def test_a_checkpoint_holds_a_story_once_whoever_was_told_before(owner):
    wanted = ended(owner)
    [first, *_] = owner.spool.owed
    owner.spool.sent(*first)
    owner.spool.commit()
    owner.stop()
    assert stored(owner.queue.checkpoint) == 1
    owner.open()
    assert owed(owner) == wanted[1:]
    assert len({id(one["param2"]) for one in owed(owner)[:9]}) == 1


def test_a_line_of_before_tells_each_receiver_by_itself():
    out = [to_webhook(url) for url in URLS]
    assert outbox.unpacked(out) == out


def test_who_is_told_alone_is_stored_as_he_was_before():
    out = [to_webhook(URLS[0]), to_webhook(URLS[1], OTHER)]
    assert outbox.packed(out) == out


def test_a_param_that_is_no_text_is_stored_with_the_copy_that_is_owed():
    copy = {"dest": "b", "message": {"dest": "b", "param2": {"size": [200, 100]}}}
    out = [to_webhook(URLS[0]), copy]
    assert outbox.unpacked(outbox.packed(out)) == out
