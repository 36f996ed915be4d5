"""What the ancestor attached is found where it lies, or refused in a sentence."""

import os

import pytest
from support_ancestor import message_at

from rq import names
from rq.errors import Refused
from rq.relay import task

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


@pytest.mark.parametrize("name", ["it's.txt", "a\nb", b"\xff.bin"])
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
