"""Attachments in prep: copied, hashed, named, shared, and proved before they are promised."""

import hashlib
import os
import stat

import pytest
from harness.spool import a_message, check_live

from rq.errors import BadInput, NoSuchMessage, NotWhole
from rq.spool import attach, folders
from rq.words.states import State


@pytest.fixture
def msg_id(owner):
    made = owner.spool.new_id()
    owner.spool.prepare(a_message(made))
    return made


def take(owner, msg_id, name, content, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(content)
    fd = os.open(source, os.O_RDONLY)
    try:
        upload = attach.begin(owner.spool, msg_id, name)
        taken = attach.copy(owner.spool.dir_fd, fd, upload)
        attach.end(owner.spool, upload, taken)
    finally:
        os.close(fd)
    return taken


def file_of(owner, msg_id, name):
    return owner.queue.message(State.PREP, msg_id) / "attach" / name


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_a_file_is_copied_with_its_digests(owner, msg_id, tmp_path, size):
    content = os.urandom(size)
    taken = take(owner, msg_id, "a.bin", content, tmp_path)
    assert taken.sha256 == hashlib.sha256(content).hexdigest()
    assert taken.md5 == hashlib.md5(content).hexdigest()
    assert taken.size == size
    path = file_of(owner, msg_id, "a.bin")
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o440
    assert owner.spool.read(msg_id).attachments == {"a.bin": taken}


def test_a_later_change_of_the_clients_file_changes_nothing(owner, msg_id, tmp_path):
    take(owner, msg_id, "a", b"before", tmp_path)
    (tmp_path / "source").write_bytes(b"after!")
    assert file_of(owner, msg_id, "a").read_bytes() == b"before"


def test_a_second_file_of_the_same_name_takes_its_place(owner, msg_id, tmp_path):
    take(owner, msg_id, "a", b"first", tmp_path)
    take(owner, msg_id, "a", b"second", tmp_path)
    assert file_of(owner, msg_id, "a").read_bytes() == b"second"
    assert owner.spool.read(msg_id).attachments["a"].size == 6
    attach.verify(owner.spool.dir_fd, owner.spool.read(msg_id), deep=True)


@pytest.mark.parametrize(
    "name", ["../x", "/f", ".hidden", "", "a/b", "a\nb", "-rf", "x" * 251, None]
)
def test_a_name_outside_the_whitelist_is_refused(owner, msg_id, name):
    with pytest.raises(BadInput):
        attach.begin(owner.spool, msg_id, name)
    assert not (owner.queue.message(State.PREP, msg_id) / "attach").exists()


def test_only_a_message_in_prep_takes_files(owner):
    with pytest.raises(NoSuchMessage):
        attach.begin(owner.spool, owner.submit(), "a")
    with pytest.raises(NoSuchMessage):
        attach.begin(owner.spool, owner.spool.new_id(), "a")


def test_only_a_regular_file_is_taken(owner, msg_id):
    upload = attach.begin(owner.spool, msg_id, "a")
    for path in ("/dev/null", "/"):
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(BadInput, match="not a regular file"):
            attach.copy(owner.spool.dir_fd, fd, upload)
        os.close(fd)
    attach.abandon(owner.spool, upload)
    assert folders.attachments(owner.queue, State.PREP, msg_id) == []


def change(path, content):
    path.chmod(0o640)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "deep"),
    [
        (lambda path: path.unlink(), False),
        (lambda path: change(path, b"short"), False),
        (lambda path: change(path, b"other content"), True),
    ],
)
def test_a_file_that_is_not_what_was_attached_is_refused(
    owner, msg_id, tmp_path, spoil, deep
):
    take(owner, msg_id, "a", b"right content", tmp_path)
    attach.verify(owner.spool.dir_fd, owner.spool.read(msg_id), deep=True)
    spoil(file_of(owner, msg_id, "a"))
    with pytest.raises(NotWhole, match="attachment a is not whole"):
        attach.verify(owner.spool.dir_fd, owner.spool.read(msg_id), deep)


def test_an_attachment_can_be_removed(owner, msg_id, tmp_path):
    take(owner, msg_id, "a", b"x", tmp_path)
    attach.remove(owner.spool, msg_id, "a")
    assert folders.attachments(owner.queue, State.PREP, msg_id) == []
    with pytest.raises(NoSuchMessage, match="no attachment a"):
        attach.remove(owner.spool, msg_id, "a")


@pytest.mark.parametrize("copied", [False, True])
def test_a_clone_shares_or_copies_its_files(owner, msg_id, tmp_path, copied):
    taken = take(owner, msg_id, "a", b"shared", tmp_path)
    clone = owner.spool.new_id()
    message = a_message(clone).with_(attachments={"a": taken})
    owner.spool.prepare(message)
    source = owner.queue.message(State.PREP, msg_id)
    attach.share(owner.spool, source, message, copied)
    attach.verify(owner.spool.dir_fd, message, deep=True)
    same = os.path.samefile(source / "attach/a", file_of(owner, clone, "a"))
    assert same is not copied
    assert stat.S_IMODE(file_of(owner, clone, "a").stat().st_mode) == 0o440


def test_attachments_are_promised_with_their_message(owner, msg_id, tmp_path):
    taken = take(owner, msg_id, "a", b"kept", tmp_path)
    message = owner.spool.read(msg_id)
    attach.verify(owner.spool.dir_fd, message, deep=False)
    owner.spool.submit(message)
    owner.spool.commit()
    owner.again()
    owner.apply()
    assert owner.spool.read(msg_id).attachments == {"a": taken}
    there = owner.queue.message(State.QUE, msg_id) / "attach/a"
    assert there.read_bytes() == b"kept"
    assert check_live(owner.spool) == []
