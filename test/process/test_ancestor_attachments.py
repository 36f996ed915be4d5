"""Files that the ancestor attached, by a second name of the sender's own file and without
a word in `msg`: none is lost when its message goes on under RQ."""

import hashlib
import os

import pytest
from harness.ancestor import message_at
from harness.queues import RunningQueue, short
from harness.waiting import wait_until

from rq.kinds import Kind
from rq.rpc import client, wire

pytestmark = pytest.mark.process
CAT, DOG = b"a picture of a cat\n", b"a picture of a dog\n"
IDS = (
    "20250301.1000.00.001.411",
    "20250301.1000.00.001.1099511627776",
    "20250301.1000.00.001.18446744073709551615",
)


@pytest.fixture
def queue(tmp_path):
    queue = RunningQueue(tmp_path / "root", "t", "obey")
    try:
        yield queue
        queue.close()
    finally:
        queue.kill()


@pytest.fixture
def sent(tmp_path):
    """A file of a sender, as the ancestor has attached it: by a second name."""
    path = tmp_path / "sent"
    path.write_bytes(CAT)
    path.chmod(0o644)
    return path


def left(queue, sent, place, *names):
    """Leave a message of the ancestor with a file; return the folder."""
    folder = message_at(queue.dir.path / place, "t", "prep", param1="echo done >&3")
    (folder / "attach").mkdir()
    for name in names:
        os.link(sent, folder / "attach" / name)
    return folder


def commit(queue, msg_id):
    return queue.ask("commit_message", {"msg_id": msg_id})


def attached(queue, msg_id):
    """Return name and content of each attachment of a message that has ended."""
    queue.ended(msg_id)
    message, files = wait_until(lambda: _with_files(queue, msg_id))
    named = {n: one["sha256"] for n, one in message["_attachments"].items()}
    assert named == {n: hashlib.sha256(data).hexdigest() for n, data in files.items()}
    return files


def _with_files(queue, msg_id):
    """Return a message and its files; OSError: its folder moves to where it ends."""
    message = queue.get(msg_id)
    place = queue.root.path / message["path"] / "attach"
    return message, {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("msg_id", IDS)
def test_its_files_stay_when_another_is_attached(queue, sent, tmp_path, msg_id):
    left(queue, sent, f"prep/{msg_id}", "cat.jpg", "kitten.jpg")
    queue.start()
    dog = tmp_path / "dog.jpg"
    dog.write_bytes(DOG)
    asked = {"msg_id": msg_id, "pathname": str(dog)}
    assert queue.ask("attach_message", asked)[0] == "ok"
    shown = queue.get(msg_id)["_attachments"]
    assert set(shown) == {"cat.jpg", "kitten.jpg", "dog.jpg"}
    assert commit(queue, msg_id) == ["ok", "msg commited"]
    known = {"cat.jpg": CAT, "kitten.jpg": CAT, "dog.jpg": DOG}
    assert attached(queue, msg_id) == known


def test_a_sender_changes_nothing_any_more_that_is_committed(queue, sent):
    left(queue, sent, f"prep/{IDS[0]}", "cat.jpg")
    queue.start()
    assert commit(queue, IDS[0]) == ["ok", "msg commited"]
    with sent.open("r+b") as file:
        file.write(DOG)
    assert attached(queue, IDS[0]) == {"cat.jpg": CAT}
    assert sent.stat().st_mode & 0o777 == 0o644


def test_one_of_its_files_can_be_removed_and_the_other_stays(queue, sent):
    folder = left(queue, sent, f"prep/{IDS[0]}", "kitten.jpg")
    queue.start()
    os.link(sent, folder / "attach" / "cat.jpg")  # laid there since it was adopted
    asked = {"msg_id": IDS[0], "attachment_name": "cat.jpg"}
    assert queue.ask("delete_attach_message", asked)[0] == "ok"
    assert commit(queue, IDS[0])[0] == "ok"
    assert attached(queue, IDS[0]) == {"kitten.jpg": CAT}


@pytest.mark.parametrize("name", ["it's\t.txt", "-a;b", "é" * 126])
def test_a_name_that_cannot_travel_is_refused_until_it_is_changed(queue, sent, name):
    folder = left(queue, sent, f"prep/{IDS[0]}", "cat.jpg", name)
    queue.start()
    word, text = commit(queue, IDS[0])
    assert word == "fail"
    assert text.startswith("attachment name has invalid characters")
    assert text.endswith("rename the file in its attach/")
    (folder / "attach" / name).rename(folder / "attach/its.txt")
    assert commit(queue, IDS[0])[0] == "ok"
    assert attached(queue, IDS[0]) == {"cat.jpg": CAT, "its.txt": CAT}


def test_what_is_no_file_is_refused(queue, sent):
    folder = left(queue, sent, f"prep/{IDS[0]}", "cat.jpg")
    (folder / "attach/etc").symlink_to("/etc/passwd")
    queue.start()
    word, text = commit(queue, IDS[0])
    assert word == "fail"
    assert text.startswith("attachment etc cannot be read")


def test_a_clone_has_what_the_ancestor_attached(queue, sent):
    left(queue, sent, f"done/20250301/10/00/{IDS[0]}", "cat.jpg")
    queue.start()
    clone = short(queue.ok("clone_message", {"msg_id": IDS[0]}))
    assert attached(queue, clone) == {"cat.jpg": CAT}
    assert sent.stat().st_mode & 0o777 == 0o644


def test_a_clone_that_would_lack_a_file_is_refused(queue, sent):
    left(queue, sent, f"done/20250301/10/00/{IDS[0]}", "cat.jpg", "it's\t.txt")
    queue.start()
    reply = client.ask(queue.dir.socket, "clone_message", {"msg_id": IDS[0]})
    error = wire.failure_in(reply)
    assert error.kind is Kind.REFUSED  # until somebody renames the file
    assert str(error).startswith("its attachments cannot be copied: attachment name")
