"""The index on a disk that is really full: owners go on, and it catches up with room."""

import json
import os

import pytest
from harness.processes import acting_as, only_root, open_to_others
from harness.small_disk import small_disk
from harness.waiting import wait_until

from rq.errors import NotPermitted
from rq.index.questions import Index
from rq.index.rows import SearchQuestion

pytestmark = [pytest.mark.process, only_root]

MIB = 1024 * 1024
STRANGER = 65533


@pytest.fixture
def small(daemon):
    """A root whose index has a disk of its own, of 24 MiB."""
    place = daemon.root.index
    place.mkdir(mode=0o700)
    with small_disk(place, "24m", part="process", mode="700"):
        settings = json.loads(daemon.root.config.read_text())
        # Without a limit it is the writes that fail, not a look beforehand.
        settings |= {"index": True, "min_free_bytes": 0}
        daemon.root.config.write_text(json.dumps(settings))
        daemon.start()
        daemon.create("q")
        daemon.until_up("q")
        yield daemon
        daemon.stop()


def send(daemon, number, word):
    for at in range(number):
        message = {"dest": "q", "due": 4e9, "param1": f"{word} {at} {'x' * 2000}"}
        assert daemon.ask_queue("q", "create_message", message)[0] == "ok"


def hits(daemon, word):
    with Index.at(daemon.root) as index:
        return index.search(SearchQuestion(words=(word,), limit=1000), None).count


def test_an_index_without_room_stops_nothing_and_catches_up(small):
    send(small, 20, "before")
    wait_until(lambda: hits(small, "before") == 20, 60)
    room = os.statvfs(small.root.index)
    ballast = small.root.index / "ballast"
    ballast.write_bytes(bytes((room.f_bavail - 8) * room.f_frsize))
    process = small.child("index")["pid"]
    send(small, 300, "meanwhile")  # each is answered
    wait_until(lambda: "space" in log(small) or "full" in log(small), 60)
    assert small.ask_queue("q", "num_messages")["que"] == 320
    assert hits(small, "before") == 20  # what it has read is still answered
    ballast.unlink()
    wait_until(lambda: hits(small, "meanwhile") == 300, 60)
    assert small.child("index")["pid"] == process


def log(daemon):
    path = daemon.root.log / "index.log"
    return path.read_text().lower() if path.exists() else ""


def test_another_user_of_the_machine_is_told_nothing_by_the_file(small):
    send(small, 1, "secret")
    wait_until(lambda: hits(small, "secret") == 1, 60)
    open_to_others(small.root.path)
    with acting_as(STRANGER, 0), pytest.raises(NotPermitted, match="index"):
        hits(small, "secret")
