"""Queues whose directories were copied or restored: their keys, and how they start."""

import shutil

import orjson
import pytest
from spooling import NOW, Owner

from rq.spool import line, outbox
from rq.states import Event

HOOK = {"dest": "webhook", "message": {"dest": "webhook", "param1": "http://h/1"}}


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path / "first")
    one.open()
    yield one
    if one.is_open:
        one.crash()


def copied(owner, path):
    """Return a copy of a queue's directory, as `cp -a` makes it."""
    copy = Owner(path, owner.clock)
    shutil.rmtree(copy.queue.path)
    shutil.copytree(owner.queue.path, copy.queue.path, symlinks=True)
    return copy


def ended(owner, param2):
    """Let a message end that owes a webhook; return its place and its key."""
    msg_id = owner.submit()
    owner.spool.claim(msg_id, 0)
    message = {**HOOK["message"], "param2": param2}
    owner.end(msg_id, Event.FINISH, out=[{**HOOK, "message": message}])
    owner.spool.commit()
    of, one = list(owner.spool.owed.items())[-1]
    return of, one.key


# ---- keys


@pytest.mark.parametrize("end", [Owner.stop, Owner.crash])
def test_a_copy_gives_no_new_message_the_key_of_another(owner, tmp_path, end):
    owner.apply()
    end(owner)
    copy = copied(owner, tmp_path / "second")
    owner.open()
    place, key = ended(owner, "of the first")
    owner.crash()
    copy.open()
    try:
        place_there, key_there = ended(copy, "of the copy")
    finally:
        copy.crash()
    assert place_there == place
    assert key_there != key


def test_the_same_message_owed_again_in_a_copy_is_another_one(owner, tmp_path):
    """It ended twice, once in each: both ends are told."""
    keys = {outbox.stamped(HOOK)["bits"] for _ in range(100)}
    assert len(keys) == 100
    assert {key[16:] for key in keys} == {next(iter(keys))[16:]}


def test_the_digest_in_a_key_is_that_of_the_message():
    there = {key: HOOK["message"][key] for key in reversed(HOOK["message"])}
    one, same = outbox.stamped(HOOK), outbox.stamped({**HOOK, "message": there})
    other = outbox.stamped({**HOOK, "message": {**there, "param2": "x"}})
    assert one["bits"][16:] == same["bits"][16:] != other["bits"][16:]


def without_bits(owner):
    """Let all that is written be as an earlier version wrote it."""
    for path in [*owner.queue.journal.glob("0*"), owner.queue.checkpoint]:
        if not path.exists():
            continue
        lines = path.read_bytes().rstrip(b"\0").splitlines()
        head = orjson.loads(lines[0])
        seed = line.seed(head["journal"], head.get("segment", ""))
        if path == owner.queue.checkpoint:
            seed = line.seed("", "checkpoint")
        changed = [orjson.loads(one) for one in lines]
        for one in changed:
            one.pop("crc")
            for out in one.get("out", ()):
                del out["bits"]
            if "owed" in one:
                one["owed"] = [entry[:7] for entry in one["owed"]]
        data = [line.sealed(line.body(one), seed) for one in changed]
        path.write_bytes(b"".join(data))


@pytest.mark.parametrize("how", ["journal", "checkpoint"])
def test_an_entry_of_an_earlier_version_keeps_its_key_for_ever(owner, how):
    ended(owner, "old")
    if how == "checkpoint":
        owner.checkpoint()
    owner.crash()
    without_bits(owner)
    owner.open()
    [(of, one)] = owner.spool.owed.items()
    assert one.key == f"{owner.spool.journal.journal_id}/{of[0]}/{of[1]}"
    owner.checkpoint()
    owner.again()
    assert [known.key for known in owner.spool.owed.values()] == [one.key]
    assert one.since == NOW


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("cafe/17/0", (17, 0)),
        ("cafe/17/2/00ff", (17, 2)),
        ("cafe//", None),
        ("cafe/17", None),
        ("", None),
        ("²/²/²", None),
    ],
)
def test_the_place_in_a_key(key, place):
    assert outbox.place_of(key) == place
    if place is not None:
        journal, _, rest = key.partition("/")
        bits = rest.split("/")[2] if rest.count("/") == 2 else ""
        assert outbox.key(journal, place, bits) == key
