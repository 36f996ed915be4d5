"""A message with more than 100 predecessors: their names stand in a file of its own."""

from __future__ import annotations

import contextlib
import json

import pytest
from harness.queues import running_queue, short
from harness.waiting import wait_until

from rq.errors import RQError
from rq.message.after import MOST_INLINE

pytestmark = pytest.mark.process
NOTE = """#!/bin/sh
eval "$RQ_PARAM1"
[ -z "$RQ_AFTER" ] || cp "$RQ_AFTER" "$RQ_ROOT/after"
echo "$RQ_MSG_ID" >> "$RQ_ROOT/order"
echo done >&3
"""
GO = 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.02; done'
NAME = "20260102.0304.05.006.7"
MANY = MOST_INLINE + 1


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, NOTE, num_workers=4) as queue:
        yield queue


def go(queue):
    (queue.root.path / "go").touch()


def order(queue):
    path = queue.root.path / "order"
    return path.read_text().split() if path.exists() else []


def predecessors(queue, number=MANY):
    """Send messages of which one waits for `go`."""
    rows = [{"dest": "t"} for _ in range(number - 1)]
    sent = queue.ok("create_messages", {"messages": rows})
    return [queue.send(param1=GO), *(short(row[1]) for row in sent)]


def waits(queue, msg_id):
    return queue.ask("get_message_state", {"msg_id": msg_id}) == ["ok", "que"]


def told(queue):
    """Return which predecessors the script was told of."""
    lines = (queue.root.path / "after").read_text().splitlines()
    return [json.loads(line)["id"] for line in lines]


def names(queue, ids):
    return [f"t/{msg_id}" for msg_id in ids]


def test_many_names_stand_in_a_file_beside_msg(queue):
    ids = predecessors(queue)
    last = queue.send(after=ids)
    assert queue.get(last)["after"] == names(queue, ids)
    place = queue.folder(last)
    said = json.loads((place / "msg").read_text())
    assert "after" not in said
    assert said["after_file"]["ids"] == MANY
    assert (place / "after").read_text().split() == names(queue, ids)
    go(queue)
    assert queue.ended(last)["state"] == "done"
    assert order(queue)[-1] == last
    assert told(queue) == ids
    assert queue.get(last)["after"] == names(queue, ids)


def test_as_many_as_fit_stay_in_msg(queue):
    last = queue.send(after=predecessors(queue, MOST_INLINE))
    place = queue.folder(last)
    assert len(json.loads((place / "msg").read_text())["after"]) == MOST_INLINE
    assert not (place / "after").exists()
    go(queue)


@pytest.mark.parametrize("how", ["crash", "crash-settled", "restart", "no-index"])
def test_who_waits_by_such_a_file_waits_after_a_start(queue, how):
    ids = predecessors(queue)
    last = queue.send(after=ids)
    if how != "crash":
        queue.folder(last)  # all is written
    if how in ("restart", "no-index"):
        assert queue.stop() == 0
        if how == "no-index":
            (queue.dir.path / "journal/index").unlink()
    else:
        queue.crash()
    queue.start()
    assert queue.state(last) == "que"
    assert queue.get(last)["after"] == names(queue, ids)
    go(queue)
    assert queue.ended(last)["state"] == "done"
    assert order(queue)[-1] == last
    queue.check()


def test_an_index_that_is_older_than_the_checkpoint_is_brought_up_to_it(queue):
    ids = predecessors(queue)
    assert queue.stop() == 0
    index = queue.dir.path / "journal/index"
    old = index.read_bytes()
    queue.start()
    last = queue.send(after=ids)
    queue.folder(last)
    assert queue.stop() == 0
    index.write_bytes(old)
    queue.start()
    assert queue.state(last) == "que"
    go(queue)
    assert queue.ended(last)["state"] == "done"
    assert order(queue)[-1] == last


def test_a_kill_between_the_file_and_the_line_accepts_nothing(queue):
    ids = predecessors(queue)
    queue.crash_at("after:list-written")
    with contextlib.suppress(RQError, OSError):
        queue.ask("create_message", {"dest": "t", "after": ids, "_key": "k"})
    wait_until(lambda: not queue.alive)
    queue.start()
    [left_behind] = queue.ok("list", {"state": "prep"})
    last = queue.send(after=ids, _key="k")
    assert last != left_behind["msg_id"]
    assert queue.send(after=ids, _key="k") == last
    go(queue)
    assert queue.ended(last)["state"] == "done"
    queue.check()


def test_a_prepared_message_gets_its_file_when_it_is_committed(queue):
    ids = predecessors(queue)
    last = short(queue.ok("prep_message", {"dest": "t", "after": ids}))
    queue.ok("commit_message", {"msg_id": last})
    assert (queue.folder(last) / "after").exists()
    queue.crash()
    queue.start()
    go(queue)
    assert queue.ended(last)["state"] == "done"
    assert order(queue)[-1] == last


def test_the_file_goes_along_when_a_message_is_moved(tmp_path, queue):
    with running_queue(tmp_path, NOTE, name="other") as other:
        ids = predecessors(queue)
        last = queue.send(after=ids)
        queue.ok("move_message", {"msg_id": last, "to": "other", "who": "ann"})
        wait_until(lambda: "goes_on" in queue.get(last)["result"])
        there = queue.get(last)["result"]["goes_on"].partition("/")[2]
        assert other.get(there)["after"] == names(queue, ids)
        assert (other.folder(there) / "after").exists()
        go(queue)
        assert other.ended(there)["state"] == "done"


def test_a_message_that_was_put_into_new_by_hand_waits_on(queue):
    ids = predecessors(queue)
    last = queue.send(after=ids)
    queue.folder(last)
    assert queue.stop() == 0
    place = queue.root.queue("t").path
    (place / "que" / last).rename(place / "new" / last)
    queue.start()
    wait_until(lambda: waits(queue, last))
    assert queue.get(last)["after"] == names(queue, ids)
    go(queue)
    assert queue.ended(last)["state"] == "done"
    assert order(queue)[-1] == last


def test_a_folder_in_new_with_many_names_survives_a_kill_behind_its_file(queue):
    ids = predecessors(queue)
    folder = queue.root.path / "drop"
    folder.mkdir()
    (folder / "msg").write_text(json.dumps({"dest": "t", "after": ids}))
    queue.crash_at("after:list-written")
    folder.rename(queue.dir.path / "new" / NAME)
    wait_until(lambda: not queue.alive)
    queue.start()
    wait_until(lambda: waits(queue, NAME))
    assert (queue.folder(NAME) / "after").read_text().split() == names(queue, ids)
    go(queue)
    assert queue.ended(NAME)["state"] == "done"
    assert order(queue)[-1] == NAME


@pytest.mark.parametrize("harm", ["gone", "shorter"])
def test_one_whose_file_is_not_whole_never_runs_too_early(queue, harm):
    last = queue.send(after=predecessors(queue))
    place = queue.folder(last) / "after"
    if harm == "gone":
        place.unlink()
    else:
        place.write_text(place.read_text().split("\n")[1] + "\n")
    assert queue.stop() == 0
    (queue.dir.path / "journal/index").unlink()
    queue.start()
    ended = queue.ended(last)
    assert ended["state"] == "err"
    assert "`after`, the list of messages that have to end first" in ended["status"]
    assert last not in order(queue)
    go(queue)


def test_check_tells_of_a_file_that_was_removed(queue):
    go(queue)
    last = queue.send(after=predecessors(queue))
    assert queue.ended(last)["state"] == "done"
    place = queue.folder(last)
    (place / "after").unlink()
    [problem] = queue.ok("check")["problems"]
    assert problem["kind"] == "after"
    assert problem["subject"] == last
    (place / "after").write_text("".join(f"t/{each}\n" for each in told(queue)))


def test_a_clone_and_an_edit_have_none(queue):
    go(queue)
    last = queue.send(after=predecessors(queue))
    queue.ended(last)
    copy = short(queue.ok("clone_message", {"msg_id": last}))
    assert "after" not in queue.ended(copy)
    assert not (queue.folder(copy) / "after").exists()
    queue.check()
