"""What the ancestor attached is found where it lies, or refused in a sentence."""

import hashlib
import os

import pytest
from harness.ancestor import message_at
from harness.spool import Owner, check_live

from rq import names
from rq.errors import Refused
from rq.relay import task
from rq.spool import adoption

MSG_ID = "20250301.1000.00.001.411"
NEW = "20250301.1000.00.001.1740823200000"


@pytest.fixture
def sent(tmp_path):
    path = tmp_path / "sent"
    path.write_bytes(b"a picture of a cat\n")
    return path


def running(tmp_path, msg_id=MSG_ID):
    """Return the working directory of a message of the ancestor that is relayed."""
    folder = message_at(tmp_path / "queue/relay/run" / msg_id, "relay", "run")
    (folder / "job").mkdir()
    (folder / "attach").mkdir()
    return folder / "job"


def read(job):
    msg_id = job.parent.name
    values = {"RQ_ROOT": str(job.parents[4]), "RQ_FULL_MSG_ID": f"http://h/{msg_id}"}
    return task.read({**values, "RQ_MSG_ID": msg_id}, job)


def test_the_relay_takes_a_file_that_its_sender_has_as_well(tmp_path, sent):
    job = running(tmp_path)
    os.link(sent, job.parent / "attach/cat.jpg")
    found = read(job)
    assert set(found.attachments) == {"cat.jpg"}
    found.prove("cat.jpg")
    with task.opened(found.file("cat.jpg")) as file:
        assert file.read() == sent.read_bytes()


@pytest.mark.parametrize("name", ["-it's.txt", "a\nb", b"\xff.bin"])
def test_the_relay_leaves_out_no_file_in_silence(tmp_path, sent, name):
    job = running(tmp_path)
    place = os.fsencode(job.parent / "attach")
    os.link(sent, os.path.join(place, os.fsencode(name)))
    with pytest.raises(Refused, match="attachment name has invalid characters") as said:
        read(job)
    str(said.value).encode()  # it can be written into a status


def test_a_file_of_others_in_a_directory_open_to_them_is_not_taken(tmp_path, sent):
    job = running(tmp_path)
    os.link(sent, job.parent / "attach/cat.jpg")
    (job.parent / "attach").chmod(0o777)
    with pytest.raises(Refused, match=r"attachment cat\.jpg cannot be read"):
        read(job)


def test_a_message_of_rq_has_no_file_that_it_does_not_name(tmp_path, sent):
    assert not names.is_ancestors(NEW)
    job = running(tmp_path, NEW)
    os.link(sent, job.parent / "attach/cat.jpg")
    assert not read(job).attachments


# ---- the first start of a queue of the ancestor


def adopted(tmp_path, where, files):
    """Open a queue with a message of the ancestor for the first time."""
    owner = Owner(tmp_path)
    place = owner.queue.path / where
    message_at(place, "q", "que")
    (place / "attach").mkdir()
    for name, content in files.items():
        (place / "attach" / name).write_bytes(content)
    owner.open()
    return owner, place


@pytest.mark.parametrize(
    "where",
    [
        f"prep/{MSG_ID}",
        f"que/{MSG_ID}",
        f"err/{MSG_ID}",
        f"err/.{MSG_ID}",
        f"done/20250301/10/00/{MSG_ID}",
    ],
)
def test_all_that_was_attached_is_named_when_a_queue_is_adopted(tmp_path, where):
    files = {"cat.jpg": b"a cat", "a dog.jpg": b"a dog"}
    owner, place = adopted(tmp_path, where, files)
    found = owner.spool.read(MSG_ID).attachments
    assert {name: one.size for name, one in found.items()} == dict.fromkeys(files, 5)
    assert found["cat.jpg"].md5 == hashlib.md5(b"a cat").hexdigest()
    assert (place / "attach/a dog.jpg").read_bytes() == b"a dog"
    assert check_live(owner.spool) == []
    assert owner.spool.read(MSG_ID).extra == {"invoice": {"kept": True}}
    owner.stop()


def test_a_file_that_its_sender_can_still_change_is_copied_then(tmp_path, sent):
    owner = Owner(tmp_path)
    place = message_at(owner.queue.path / "que" / MSG_ID, "q", "que")
    (place / "attach").mkdir()
    os.link(sent, place / "attach/cat.jpg")
    owner.open()
    sent.write_bytes(b"no cat any more")
    assert (place / "attach/cat.jpg").read_bytes() == b"a picture of a cat\n"
    assert owner.spool.read(MSG_ID).attachments["cat.jpg"].size == 19
    assert os.listdir(place / "attach") == ["cat.jpg"]
    owner.stop()


@pytest.mark.parametrize("name", ["-cat", os.fsdecode(b"caf\xe9"), "x" * 251])
def test_what_cannot_travel_is_told_at_the_first_start_and_stays(
    tmp_path, caplog, name
):
    owner, place = adopted(tmp_path, f"que/{MSG_ID}", {name: b"x", "ok": b"y"})
    assert "attachment name has invalid characters" in caplog.text
    assert MSG_ID in caplog.text
    assert sorted(os.listdir(place / "attach")) == sorted([name, "ok"])
    assert owner.spool.read(MSG_ID).attachments == {}
    owner.stop()


def test_more_than_is_soon_read_is_left_for_when_it_is_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr(adoption, "ADOPTED_BYTES", 4)
    owner, _ = adopted(tmp_path, f"que/{MSG_ID}", {"cat.jpg": b"a cat"})
    assert owner.spool.read(MSG_ID).attachments == {}
    owner.stop()


def test_a_second_start_names_nothing(tmp_path):
    owner, place = adopted(tmp_path, f"que/{MSG_ID}", {"cat.jpg": b"a cat"})
    owner.stop()
    (place / "attach/by hand").write_bytes(b"x")
    owner.open()
    assert list(owner.spool.read(MSG_ID).attachments) == ["cat.jpg"]
    owner.stop()
