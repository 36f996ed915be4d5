"""`attempts/N.json`: made from the lines of the journal, whatever a crash leaves of them."""

import shutil

import orjson
import pytest
from harness.spool import Owner

from rq.layout import ATTEMPTS
from rq.spool import attempt_files, attempts_kept, offline
from rq.words.states import Event, Role, State

RETRY = {"cause": "resend", "text": "again", "outcome": "retry", "run_us": 5}
DONE = {"cause": "done", "text": "well", "outcome": "done", "run_us": 5}


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path / "q")
    one.open()
    yield one
    if one.is_open:
        one.crash()


def tried(owner, msg_id, event=Event.RETRY, facts=RETRY):
    """Let an attempt begin and end, durably; no folder is touched."""
    message = owner.spool.claim(msg_id, 0)
    message = message.with_(count=message.count + (event is Event.RETRY))
    owner.spool.fire(msg_id, event, Role.QUEUE, message=message, facts=facts)
    owner.spool.commit()


def files(owner, msg_id):
    place = owner.queue.path / owner.spool.place(msg_id) / ATTEMPTS
    return {int(one.stem): orjson.loads(one.read_bytes()) for one in place.iterdir()}


def test_attempts_that_no_folder_has_seen_are_all_kept_after_a_crash(owner):
    msg_id = owner.submit()
    for _ in range(3):
        tried(owner, msg_id)
    owner.crash()
    owner.open()
    owner.apply()
    kept = files(owner, msg_id)
    assert set(kept) == {1, 2, 3}
    assert [kept[number]["attempt"] for number in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize("damage", ["torn", "gone", "all gone"])
def test_what_a_power_cut_has_torn_is_written_again(owner, damage):
    msg_id = owner.submit()
    for _ in range(2):
        tried(owner, msg_id)
    owner.apply()
    folder = owner.queue.path / owner.spool.place(msg_id)
    before = files(owner, msg_id)
    owner.crash()
    if damage == "torn":
        (folder / ATTEMPTS / "1.json").write_bytes(b"\0" * 10)
    elif damage == "gone":
        (folder / ATTEMPTS / "1.json").unlink()
    else:
        shutil.rmtree(folder)
    owner.open()
    owner.apply()
    assert files(owner, msg_id) == before


def test_of_many_the_first_and_the_newest_are_kept_after_a_crash(owner):
    msg_id, last = owner.submit(), attempt_files.NEWEST + 5
    for _ in range(last):
        tried(owner, msg_id)
    owner.crash()
    owner.open()
    owner.apply()
    newest = range(last - attempt_files.NEWEST + 1, last + 1)
    assert set(files(owner, msg_id)) == {1, *newest}


def test_what_never_began_has_no_file_and_gives_its_number_again(owner):
    msg_id = owner.submit()
    tried(owner, msg_id)
    message = owner.spool.claim(msg_id, 0)
    facts = {"cause": "spawn", "text": "no process", "outcome": "requeue"}
    given = message.with_(attempt=message.attempt - 1)
    owner.spool.fire(msg_id, Event.REQUEUE, Role.QUEUE, message=given, facts=facts)
    owner.spool.commit()
    owner.apply()
    assert files(owner, msg_id)[1]["cause"] == "resend"


def test_an_only_attempt_that_went_well_has_no_file(owner):
    msg_id = owner.submit()
    tried(owner, msg_id, Event.FINISH, DONE)
    owner.apply()
    place = owner.queue.message(State.DONE, msg_id)
    assert not (place / ATTEMPTS).exists()
    path = str(place.relative_to(owner.queue.path))
    [row] = attempts_kept.listed(path, owner.spool.dir_fd)["attempts"]
    assert (row["attempt"], row["how"]) == (1, "done: well")


@pytest.mark.parametrize("planted", ["link", "file", "mode"])
def test_what_lies_in_the_place_of_their_directory_goes(owner, planted, tmp_path):
    msg_id = owner.submit()
    owner.apply()
    place = owner.queue.path / owner.spool.place(msg_id) / ATTEMPTS
    other = tmp_path / "other"
    other.mkdir()
    if planted == "link":
        place.symlink_to(other)
    elif planted == "file":
        place.write_text("x")
    else:
        place.mkdir(mode=0)
    tried(owner, msg_id)
    owner.apply()
    assert set(files(owner, msg_id)) == {1}
    assert list(other.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("1.json", "[]"), ("x.json", "{}"), ("2.json", '{"cause": 7}'), ("03.json", "{}")],
)
def test_what_rq_has_not_written_is_not_listed(owner, name, text):
    msg_id = owner.submit()
    owner.apply()
    path = owner.spool.place(msg_id)
    place = owner.queue.path / path / ATTEMPTS
    place.mkdir()
    (place / name).write_text(text)
    assert attempts_kept.listed(path, owner.spool.dir_fd)["attempts"] == []


def test_the_log_of_an_attempt_is_not_looked_for_in_that_of_a_later_job(owner):
    msg_id = owner.submit()
    for log in ([0, 10], [10, 30], [0, 5], [5, 6]):
        tried(owner, msg_id, facts={**RETRY, "log": log})
    owner.apply()
    path = owner.spool.place(msg_id)
    job = owner.queue.path / path / "job"
    job.mkdir(exist_ok=True)
    (job / "stdio.log").write_bytes(b"later.")
    rows = attempts_kept.listed(path, owner.spool.dir_fd)["attempts"]
    parts = [attempts_kept.part_of(rows, number) for number in (1, 2, 3, 4)]
    assert [part and (part.begin, part.end) for part in parts] == [
        None,
        None,
        (0, 5),
        (5, 6),
    ]
    assert "attempt 1 is not in job/ any more" in attempts_kept.why_none(rows, 1)


@pytest.mark.parametrize(
    ("view", "number"),
    [
        ({}, 0),
        ({"attempt": None, "result": {}}, 0),
        ({"attempt": 2, "result": {}}, 2),
        ({"attempt": 1, "result": {"attempt": 2}}, 2),
    ],
)
def test_the_attempts_of_a_message_are_those_that_its_result_or_it_names(view, number):
    assert offline.attempts(view) == number
