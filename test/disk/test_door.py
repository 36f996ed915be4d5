"""The other door: what any program renames into new/ is adopted, or refused with a reason."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
from harness.limits import free_descriptors
from harness.spool import ORIGIN, adopt, check_live, deposit, look

from rq.layout import folder
from rq.spool import deposits, door, folders
from rq.words.states import State

FOREIGN = "20200101.0000.00.000.7"


def refused(owner):
    """Look at the door; return the reason why what lies there goes to err."""
    assert look(owner) == []
    (msg_id,) = folders.list_state(owner.queue, State.ERR)
    status = folders.read_status(owner.queue, State.ERR, msg_id)
    assert status["cause"] == "bad_message"
    return status["job_status"]


def test_a_folder_becomes_a_message(owner):
    deposit(owner, "anything", attach={"a.txt": b"hello"})
    (message,) = look(owner)
    assert owner.spool.find(message.msg_id) is State.QUE
    read = owner.spool.read(message.msg_id)
    assert read.params == {"param1": "x"}
    assert read.orig_msg_id == ORIGIN + message.msg_id
    one = read.attachments["a.txt"]
    assert one.sha256 == hashlib.sha256(b"hello").hexdigest()
    assert (one.size, one.md5) == (5, hashlib.md5(b"hello").hexdigest())
    file = owner.queue.message(State.QUE, message.msg_id) / "attach/a.txt"
    assert stat.S_IMODE(file.stat().st_mode) == 0o440


def test_what_was_dropped_while_rq_was_stopped_is_taken(owner):
    owner.stop()
    deposit(owner, "early")
    owner.open()
    assert len(look(owner)) == 1


def test_an_id_that_is_free_is_kept(owner):
    deposit(owner, FOREIGN)
    (message,) = look(owner)
    assert message.msg_id == FOREIGN
    owner.again()
    assert owner.spool.find(FOREIGN) is State.QUE


@pytest.mark.parametrize("state", [State.QUE, State.ERR, State.DONE])
def test_an_id_that_is_taken_is_remembered_and_replaced(owner, state):
    deposit(owner, FOREIGN)
    look(owner)
    if state is not State.QUE:
        owner.spool.claim(FOREIGN, 0)
        owner.end(FOREIGN, {State.ERR: "fail", State.DONE: "finish"}[state])
        owner.apply()
    deposit(owner, FOREIGN, msg='{"dest": "q", "param1": "second"}')
    (message,) = look(owner)
    assert message.msg_id != FOREIGN
    assert message.orig_msg_id == FOREIGN
    assert owner.spool.find(FOREIGN) is state
    assert owner.spool.read(FOREIGN).params == {"param1": "x"}


def test_a_line_that_is_on_disk_brings_its_folder_in_after_a_crash(owner):
    deposit(owner, "one", attach={"a": b"x"})
    (message,) = adopt(owner.spool).messages
    owner.spool.commit()
    owner.again()
    assert owner.spool.find(message.msg_id) is State.QUE
    assert look(owner) == []
    assert folders.attachments(owner.queue, State.QUE, message.msg_id) == ["a"]


def test_without_a_line_the_folder_is_still_the_depositors(owner):
    deposit(owner, "one")
    adopt(owner.spool)
    owner.again()
    assert os.listdir(owner.queue.path / "new") == ["one"]
    assert len(look(owner)) == 1


def test_what_is_taken_is_not_taken_twice_before_it_has_moved(owner):
    deposit(owner, "one")
    assert len(adopt(owner.spool).messages) == 1
    assert adopt(owner.spool).messages == []
    owner.spool.commit()
    assert adopt(owner.spool).messages == []


@pytest.mark.parametrize(
    ("msg", "reason"),
    [
        (None, "msg is missing"),
        ("", "msg is not JSON"),
        ("{", "msg is not JSON"),
        ("[]", "a message is a JSON object"),
        ("{}", "dest"),
        ('{"dest": 7}', "dest is not text"),
        ('{"dest": "q", "due": {}}', "due is not epoch seconds"),
        (json.dumps({"dest": "q", "x": "y" * 2**20}), "bytes of JSON, at most"),
        (
            json.dumps({"dest": "q", "post_run_webhook": ["http://h/"] * 21}),
            "post_run_webhook has 21 URLs",
        ),
        ('{"dest": "q", "x": ' + "[" * 500 + "]" * 500 + "}", "nested deeper than"),
    ],
)
def test_a_malformed_message_goes_to_err_with_the_reason(owner, msg, reason):
    deposit(owner, "bad", msg=msg)
    assert reason in refused(owner)
    assert owner.spool.counts.of(State.ERR) == 1


def plant_symlink(folder_path):
    (folder_path / "attach").mkdir()
    (folder_path / "attach" / "x").symlink_to("/etc/passwd")


def plant_msg_symlink(folder_path):
    (folder_path / "msg").unlink()
    (folder_path / "msg").symlink_to("/etc/passwd")


def plant_hard_link(folder_path):
    (folder_path / "attach").mkdir()
    os.link(folder_path / "msg", folder_path / "attach" / "x")


def plant_file(folder_path):
    (folder_path / "extra").write_bytes(b"x")


def plant_status_symlink(folder_path):
    (folder_path / "status").symlink_to(folder_path.parent.parent.parent / "victim")


def plant_status_directory(folder_path):
    (folder_path / "status").mkdir()
    (folder_path / "status.tmp").mkdir()


def plant_fifo(folder_path):
    os.mkfifo(folder_path / "attach")


def plant_attach_symlink(folder_path):
    (folder_path / "attach").symlink_to("/etc")


def plant_directory(folder_path):
    (folder_path / "attach" / "deep").mkdir(parents=True)


def plant_name(folder_path):
    (folder_path / "attach").mkdir()
    (folder_path / "attach" / "-rf").write_bytes(b"x")


def plant_log(folder_path):
    (folder_path / "job").mkdir()
    (folder_path / "job" / "stdio.log").symlink_to("/etc/passwd")


PLANTS = [
    plant_symlink,
    plant_msg_symlink,
    plant_hard_link,
    plant_file,
    plant_status_symlink,
    plant_status_directory,
    plant_fifo,
    plant_attach_symlink,
    plant_directory,
    plant_name,
    plant_log,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__)
def test_a_planted_file_is_refused_and_harms_nobody(owner, plant):
    victim = owner.queue.path.parent / "victim"
    victim.write_text("untouched")
    plant(deposit(owner, "bad"))
    assert refused(owner)
    assert victim.read_text() == "untouched"
    owner.again()
    owner.apply()
    assert owner.spool.counts.of(State.ERR) == 1


def test_a_plain_file_is_refused_and_harms_nobody(owner):
    (owner.queue.path / "new" / "file").write_text("x")
    deposit(owner, "good")
    adopted = adopt(owner.spool)
    owner.apply()
    assert len(adopted.messages) == 1
    assert owner.spool.counts.of(State.ERR) == 1


def test_a_symlink_to_a_directory_is_refused_and_nothing_written_through_it(owner):
    victim = owner.queue.path.parent / "victim"
    victim.mkdir()
    (owner.queue.path / "new" / "link").symlink_to(victim)
    assert "not a directory" in refused(owner)
    assert os.listdir(victim) == []


def test_a_refusal_survives_a_crash_before_the_folder_has_moved(owner):
    deposit(owner, "bad", msg="{")
    adopt(owner.spool)
    owner.spool.commit()
    owner.again()
    assert "not JSON" in refused(owner)
    assert owner.spool.counts.of(State.ERR) == 1


def test_what_was_refused_can_be_dismissed_and_removed(owner):
    deposit(owner, "bad", msg="{")
    refused(owner)
    (msg_id,) = folders.list_state(owner.queue, State.ERR)
    owner.spool.fire(msg_id, "dismiss", "creator")
    owner.apply()
    assert (owner.queue.path / folder(State.DISMISSED, msg_id)).is_dir()
    owner.spool.fire(msg_id, "discard", "creator")
    owner.apply()
    assert check_live(owner.spool) == []


def test_what_was_refused_is_kept_for_its_depositor_to_see(owner):
    deposit(owner, "bad", msg="{ 7")
    refused(owner)
    (msg_id,) = folders.list_state(owner.queue, State.ERR)
    kept = owner.queue.message(State.ERR, msg_id) / "refused" / "msg"
    assert kept.read_text() == "{ 7"


def test_many_folders_are_taken_in_turns_and_listed_once_for_many_of_them(
    owner, monkeypatch
):
    """A listing costs as much as there is at the door, however few of it are taken."""
    monkeypatch.setattr(door, "BATCH", 4)
    monkeypatch.setattr(deposits, "LISTED", 40)
    for n in range(50):
        deposit(owner, f"n{n:03d}")
    assert len(adopt(owner.spool).messages) == 40
    owner.apply()
    assert len(look(owner)) == 10


def ran_bound(request):
    """Run a test again in a process that may not write everywhere, if this one may;
    return whether it did."""
    bound = os.environ.get("RQ_TEST_BOUND")
    if os.geteuid() != 0 or bound:
        return False
    words = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
    words += [sys.executable, "-m", "pytest", "-q", request.node.nodeid]
    told = subprocess.run(
        words,
        cwd=request.config.rootpath,
        env={**os.environ, "RQ_TEST_BOUND": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return True


def test_a_folder_that_cannot_be_moved_stays_and_is_shown(request, owner):
    if ran_bound(request):
        return
    path = deposit(owner, "bad")
    path.chmod(0o500)
    adopted = adopt(owner.spool)
    assert list(adopted.left) == ["bad"]
    path.chmod(0o700)


def test_folders_that_cannot_be_moved_do_not_block_the_door(request, owner):
    if ran_bound(request):
        return
    stuck = [deposit(owner, f"a{n}") for n in range(door.BATCH)]
    for path in stuck:
        path.chmod(0o500)
    deposit(owner, "good")
    left = adopt(owner.spool).left
    assert len(adopt(owner.spool, left).messages) == 1
    for path in stuck:
        path.chmod(0o700)


OTHER = 4321  # a user who is not RQ's


def of_another(path):
    """Give a deposit and all in it to another user."""
    if os.geteuid() != 0:
        pytest.skip("another user's files need root -> sudo ./test/run_tests.sh disk")
    for place in (path, *path.rglob("*")):
        os.chown(place, OTHER, OTHER, follow_symlinks=False)
    return path


def taken_from_another(owner):
    """Look at the door until the deposit has gone; return the one message."""
    (message,) = adopt(owner.spool).messages
    assert os.listdir(owner.queue.path / "new") != []  # its line is not on disk yet
    owner.apply()
    assert look(owner) == []
    return message


def test_what_another_user_keeps_open_changes_no_message(owner):
    path = of_another(deposit(owner, "theirs", attach={"a.txt": b"as it was sent"}))
    kept = os.open(path / "attach/a.txt", os.O_RDWR)
    message = taken_from_another(owner)
    os.pwrite(kept, b"CHANGED", 0)
    os.close(kept)
    place = owner.queue.message(State.QUE, message.msg_id)
    assert (place / "attach/a.txt").read_bytes() == b"as it was sent"
    for found in (place, place / "msg", place / "attach", place / "attach/a.txt"):
        assert found.stat().st_uid == os.geteuid()
    assert owner.spool.read(message.msg_id).attachments["a.txt"].size == 14


def test_a_single_file_of_another_user_makes_a_copy_of_all(owner):
    path = deposit(owner, "mixed", attach={"a": b"x"})
    of_another(path / "msg")
    os.chown(path / "attach/a", OTHER, OTHER)
    message = taken_from_another(owner)
    file = owner.queue.message(State.QUE, message.msg_id) / "attach/a"
    assert file.stat().st_uid == os.geteuid()


def test_a_copied_deposit_makes_one_message_though_the_owner_dies(owner):
    of_another(deposit(owner, "theirs", attach={"a": b"x"}))
    (message,) = adopt(owner.spool).messages
    owner.spool.commit()
    owner.again()
    assert adopt(owner.spool).messages == []
    owner.apply()
    assert os.listdir(owner.queue.path / "new") == []
    assert owner.spool.counts.of(State.QUE) == 1
    assert owner.spool.find(message.msg_id) is State.QUE


def test_a_deposit_that_cannot_be_copied_leaves_nothing_half_made(owner):
    path = deposit(owner, "theirs", attach={"a": b"x"})
    with (path / "attach/b").open("wb") as file:
        file.truncate(deposits.MOST_BYTES)
    of_another(path)
    assert "another user's attachments" in refused(owner)
    assert folders.list_state(owner.queue, State.PREP) == []


@pytest.mark.parametrize("size", [2**20, 1_500_000_000])
def test_a_message_that_is_too_large_is_refused_before_it_is_read(owner, size):
    path = deposit(owner, "sparse")
    with (path / "msg").open("r+b") as file:
        file.truncate(size)
    assert f"msg has {size} bytes of JSON, at most" in refused(owner)


@pytest.mark.parametrize("number", range(1, 8))
def test_a_deposit_that_cannot_be_looked_at_now_stays_at_the_door(owner, number):
    place = deposit(owner, "good", attach={"a.txt": b"hello"})
    with free_descriptors(number):
        adopted = adopt(owner.spool)
    if not adopted.messages:
        assert adopted.left == {"good": "Too many open files"}
        assert place.is_dir()
        adopted = adopt(owner.spool, adopted.left)
    owner.apply()
    (message,) = adopted.messages
    assert owner.spool.find(message.msg_id) is State.QUE


def test_a_deposit_tells_whose_it_is(owner):
    place = deposit(owner, "20260102.0304.05.006.007")
    path, ours = f"new/{place.name}", os.geteuid()
    with deposits.opened(owner.spool.dir_fd, path) as mine:
        assert (mine.foreign, mine.trusted, mine.uid) == (False, True, ours)
    if ours == 0:
        os.chown(place / "msg", 65534, -1)
        with deposits.opened(owner.spool.dir_fd, path) as theirs:
            assert (theirs.foreign, theirs.trusted, theirs.uid) == (True, False, 65534)
    shutil.rmtree(place)
