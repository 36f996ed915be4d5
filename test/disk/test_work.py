"""Directories of batches: one log under many names, and whose they are after a crash."""

import json
import os

import pytest

from rq.proc.processes import Holder
from rq.spool import batch_dirs

BATCH = "20270115.0800.00.000.1.1"


@pytest.fixture
def ids(owner):
    found = [owner.submit() for _ in range(3)]
    for msg_id in found:
        owner.spool.claim(msg_id, 0, batch=BATCH)
    return found


def job(owner, msg_id):
    return owner.queue.path / "run" / msg_id / "job"


def test_a_log_has_a_name_in_the_folder_of_each_message(owner, ids):
    log = owner.queue.path / "batch" / BATCH / "stdio.log"
    batch_dirs.begin(owner.spool, BATCH)
    log.write_text("begun\n")
    for msg_id in ids:
        batch_dirs.share_log(owner.spool, BATCH, msg_id, 1)
    with log.open("a") as file:
        file.write("ended\n")
    batch_dirs.end(owner.spool, BATCH)
    owner.apply()
    assert not log.exists()
    for msg_id in ids:
        assert (job(owner, msg_id) / "stdio.log").read_text() == "begun\nended\n"


def test_a_log_of_an_earlier_attempt_gets_its_number(owner, ids):
    for attempt, text in enumerate(("first", "second", "third"), 1):
        batch_dirs.begin(owner.spool, text)
        (owner.queue.path / "batch" / text / "stdio.log").write_text(text)
        batch_dirs.share_log(owner.spool, text, ids[0], attempt)
        batch_dirs.end(owner.spool, text)
    place = job(owner, ids[0])
    found = {path.name: path.read_text() for path in place.iterdir()}
    assert found == {
        "stdio.1.log": "first",
        "stdio.2.log": "second",
        "stdio.log": "third",
    }


def test_a_file_that_can_have_no_second_name_costs_no_message(owner, ids):
    batch_dirs.begin(owner.spool, BATCH)
    (owner.queue.path / "batch" / BATCH / "stdio.log").mkdir()  # no links to those
    batch_dirs.share_log(owner.spool, BATCH, ids[0], 1)
    assert list(job(owner, ids[0]).iterdir()) == []


def test_a_start_removes_what_is_left_of_batches(owner):
    batch_dirs.begin(owner.spool, BATCH)
    (owner.queue.path / "batch" / BATCH / "deep").mkdir()
    owner.crash()
    owner.open()
    owner.apply()
    assert os.listdir(owner.queue.path / "batch") == []
    assert os.listdir(owner.queue.path / "gone") == []


def test_a_process_that_does_not_end_holds_all_messages_of_its_batch(owner, ids):
    batch_dirs.begin(owner.spool, BATCH)
    told = json.dumps({"messages": [{"msg_id": one} for one in ids]})
    batch_dirs.describe(owner.spool, BATCH, told.encode())
    ghosts = [
        Holder(1, os.open("/dev/null", os.O_RDONLY), "q/1", whose)
        for whose in (BATCH, "20270115.0800.00.000.9", "")
    ]
    found = batch_dirs.members(owner.queue, ghosts)
    for one in found:
        os.close(one.pidfd)  # each is a descriptor of its own
    whose = [one.msg_id for one in found]
    assert whose == [BATCH, *ids, "20270115.0800.00.000.9", ""]
    batch_dirs.clear(owner.spool, {BATCH})
    assert os.listdir(owner.queue.path / "batch") == [BATCH]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"messages": 5}', '{"messages": [{}]}']
)
def test_a_list_of_messages_that_cannot_be_read_names_none(owner, text):
    batch_dirs.begin(owner.spool, BATCH)
    batch_dirs.describe(owner.spool, BATCH, text.encode())
    [found] = batch_dirs.members(owner.queue, [Holder(1, os.dup(0), "q/1", BATCH)])
    os.close(found.pidfd)
    assert found.msg_id == BATCH
