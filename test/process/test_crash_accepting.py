"""kill -9 while messages come in: what was answered is there, what was not is harmless."""

import json
import re
from pathlib import Path

import pytest
from harness.extent import rotated
from harness.kills import site_at
from harness.queues import short
from harness.supervisor import connect
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown
from rq.rpc import client, wire

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        yield site


@pytest.fixture
def queue(site):
    return site.queue().start()


def attach(queue, msg_id, path):
    asked = {"msg_id": msg_id, "pathname": str(path)}
    assert queue.ok("attach_message", asked).endswith("Attached successfully")


@pytest.fixture
def prepared(queue, tmp_path):
    """Give a prepared message with an attachment, answered."""
    (tmp_path / "letter").write_text("dear all\n")
    msg_id = queue.prepare()
    attach(queue, msg_id, tmp_path / "letter")
    return msg_id


def commit(queue, msg_id):
    return queue.ok("commit_message", {"msg_id": msg_id})


def test_a_prepared_message_survives_and_can_still_be_committed(queue):
    msg_id = queue.prepare()
    queue.restart()
    assert queue.state(msg_id) == "prep"
    commit(queue, msg_id)
    queue.promised.append(msg_id)
    queue.until(msg_id, "done")
    queue.prove()


def test_an_id_is_not_given_again_after_a_crash(queue):
    ids = []
    for _ in range(3):
        ids += [queue.prepare(), queue.submit()]
        queue.restart()
    assert len({one.rsplit(".", 1)[1] for one in ids}) == len(ids)
    queue.prove()


def test_an_attached_file_survives_and_goes_with_its_message(queue, prepared):
    queue.restart()
    commit(queue, prepared)
    queue.promised.append(prepared)
    shown = queue.until(prepared, "done")
    assert Path(shown["_attachments"]["letter"]["path"]).read_text() == "dear all\n"
    queue.prove()


@pytest.mark.parametrize("torn", [b"dear", b"dear arm\n"], ids=["cut", "changed"])
def test_an_attachment_that_a_crash_has_torn_is_not_accepted(
    queue, prepared, tmp_path, torn
):
    queue.kill()
    letter = queue.dir.path / "prep" / prepared / "attach" / "letter"
    letter.chmod(0o600)
    letter.write_bytes(torn)
    queue.start()
    answer = queue.ask("commit_message", {"msg_id": prepared})
    assert answer == ["fail", "attachment letter is not whole; attach it again"]
    attach(queue, prepared, tmp_path / "letter")
    commit(queue, prepared)
    queue.until(prepared, "done")
    queue.prove()


@pytest.mark.parametrize(
    "command", rotated(["attach_message", "delete_attach_message"])
)
@pytest.mark.parametrize("point", ["write:before-rename", "write:after-rename"])
def test_a_file_that_was_not_answered_does_not_go_with_its_message(
    queue, prepared, tmp_path, command, point
):
    (tmp_path / "second").write_text("once more\n")
    asked = {"msg_id": prepared, "pathname": str(tmp_path / "second")}
    asked["attachment_name"] = "letter"
    assert queue.crash(point, lambda: queue.ask(command, asked)) is None
    queue.start()
    assert queue.ok("check") == {"problems": []}
    commit(queue, prepared)
    queue.promised.append(prepared)
    queue.until(prepared, "done")
    queue.prove()


@pytest.mark.parametrize("point", ["journal:before-write", "journal:written"])
def test_a_commit_without_answer_can_be_asked_again(queue, prepared, point):
    asked = {"msg_id": prepared}
    assert queue.crash(point, lambda: queue.ask("commit_message", asked)) is None
    queue.start()
    commit(queue, prepared)
    queue.promised.append(prepared)
    queue.until(prepared, "done")
    assert len(queue.site.ran("start", prepared)) == 1
    queue.prove()


@pytest.mark.parametrize("point", ["journal:written", "journal:after-sync"])
def test_a_message_whose_line_was_written_runs_once_though_nobody_was_told(
    queue, point
):
    assert queue.crash(point, queue.submit) is None
    queue.start()
    [msg_id] = wait_until(queue.ids)
    queue.until(msg_id, "done")
    assert len(queue.site.ran("start")) == 1
    queue.prove()


def test_a_message_whose_line_was_not_written_leaves_nothing(queue):
    assert queue.crash("journal:before-write", queue.submit) is None
    queue.start()
    assert queue.ids() == []
    queue.prove()


def submit_group(queue, number):
    """Ask for several messages in one breath, so that they share a group."""
    asked = json.dumps({"dest": queue.name, "due": 4e9}).encode()
    with connect(queue.dir.socket) as line:
        line.sendall(wire.frame(b"create_message " + asked) * number)
        return line.recv(4096)


def test_a_group_with_a_hole_ends_at_the_hole(queue):
    kept = queue.submit(due=4e9)
    assert not queue.crash("journal:written", lambda: submit_group(queue, 4))
    segment = queue.segment()
    data = segment.read_bytes()
    # Behind the header and what was kept; a busy machine writes fewer than four.
    first, second, *_ = [at.start() for at in re.finditer(rb'{"crc', data)][2:]
    segment.write_bytes(data[:second] + bytes(300) + data[second + 300 :])
    [line] = data[first:second].splitlines()
    queue.start()
    wait_until(lambda: queue.ids() == sorted([kept, json.loads(line)["msg"]]), 20)
    queue.prove()


def test_a_group_that_was_cut_short_ends_at_the_cut(queue):
    kept = queue.submit(due=4e9)
    assert not queue.crash("journal:written", lambda: submit_group(queue, 3))
    segment = queue.segment()
    whole = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(whole[:-40])
    queue.start()
    wait_until(lambda: len(queue.ids()) == 3)
    assert kept in queue.ids()
    queue.submit(due=4e9)
    queue.restart()  # nothing was glued to the torn line
    wait_until(lambda: len(queue.ids()) == 4)
    queue.prove()


def test_a_journal_damaged_in_its_middle_is_not_believed(queue):
    queue.submit(due=4e9)
    queue.submit(due=4e9)
    queue.kill()
    segment = queue.segment()
    data = segment.read_bytes()
    at = data.index(b'"ev":"commit"')
    segment.write_bytes(data[:at] + b'"ev":"c0mmit"' + data[at + 13 :])
    queue.start(crash_at="never")
    assert queue.said.startswith("FATAL")
    assert segment.name in queue.said
    assert "docs/guide/backup.md" in queue.said
    assert queue.process.wait(20) == 3


@pytest.mark.parametrize(
    "point",
    [
        "journal:after-sync",
        "make:before-msg",
        "move:before-rename",
        "move:after-rename",
    ],
)
@pytest.mark.parametrize("due", [0, 4e9], ids=["at_once", "later"])
def test_an_accepted_message_is_there_wherever_the_making_of_its_folder_was_cut(
    queue, point, due
):
    if "move" in point:
        msg_id = queue.prepare(due=due)
        asked = {"msg_id": msg_id}
        queue.crash(point, lambda: queue.ask("commit_message", asked))
    else:
        queue.crash(point, lambda: queue.submit(due=due))
    queue.start()
    [msg_id] = queue.ids() or wait_until(queue.ids)
    queue.promised.append(msg_id)
    if due:
        assert queue.show(msg_id)["due"] == due
    else:
        queue.until(msg_id, "done")
        assert len(queue.site.ran("start")) == 1
    queue.prove()


@pytest.mark.parametrize("torn", [b"", b'{"dest":"t","par'], ids=["empty", "half"])
def test_a_torn_file_msg_is_written_again_from_the_journal(queue, torn):
    msg_id = queue.submit(due=4e9, param2="keep me")
    msg = queue.dir.path / "que" / msg_id / "msg"
    wait_until(msg.exists)
    queue.kill()
    msg.write_bytes(torn)
    queue.start()
    assert queue.show(msg_id)["param2"] == "keep me"
    wait_until(lambda: b"keep me" in msg.read_bytes())
    queue.prove()


def deposit(queue, name):
    made = queue.site.root.path / "made"
    made.mkdir()
    (made / "msg").write_text(json.dumps({"dest": queue.name}))
    made.rename(queue.dir.path / "new" / name)
    return queue.ask("wake")


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "journal:before-write",
            "journal:after-sync",
            "move:before-rename",
            "move:after-rename",
        ],
        2,
    ),
)
@pytest.mark.parametrize("name", ["mine", "20260102.0304.05.006.7"])
def test_what_came_through_the_door_is_accepted_once(queue, point, name):
    queue.crash(point, lambda: deposit(queue, name))
    queue.start()
    [msg_id] = wait_until(queue.ids)
    queue.promised.append(msg_id)
    queue.until(msg_id, "done")
    assert len(queue.site.ran("start")) == 1
    assert list((queue.dir.path / "new").iterdir()) == []
    queue.prove()


def test_a_client_that_sees_the_queue_die_hears_that_nobody_knows(queue):
    queue.arm("journal:written")
    with (
        client.Connection(queue.dir.socket) as line,
        pytest.raises(OutcomeUnknown, match=r"without an answer|hung up"),
    ):
        line.ask("create_message", {"dest": queue.name})
    assert queue.died()


def test_a_delivery_key_is_remembered_across_a_crash(queue):
    asked = {"dest": queue.name, "due": 4e9, "_key": "aaaa/7/0"}
    msg_id = queue.ok("create_message", asked)
    for _ in range(2):
        queue.restart()
        assert queue.ok("create_message", asked) == msg_id
    assert queue.ids() == [short(msg_id)]
    assert queue.stop() == 0
    queue.start()
    assert queue.ok("create_message", asked) == msg_id
    queue.prove()
