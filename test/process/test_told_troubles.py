"""Who is named in `on_trouble` is told once what is badly wrong, and when it is over."""

import asyncio
import json

import pytest
from harness.post import Post, notice_queue
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.config import secrets
from rq.replies.verdict import Fault
from rq.timers.troubles import LOOK, Troubles, troubles

pytestmark = pytest.mark.process

TO = ("mail:ops@example.org",)
GOOD = "#!/bin/sh\necho done >&3\n"


class Clock:
    """Looks at troubles as often as a test wants, as if time had passed."""

    def __init__(self, root):
        self.told = Troubles(root, TO)
        self.now = 0.0

    def look(self):
        async def once():
            self.told.look(self.now)
            await asyncio.gather(*self.told._tasks)

        asyncio.run(once())
        self.now += LOOK


@pytest.fixture
def house(tmp_path):
    """Two queues under a supervisor, and the queue that brings notices; where mail goes."""
    post = Post(tmp_path / "rq", on_trouble="ops@example.org", web=False)
    with daemon_on(tmp_path / "rq") as daemon:
        notices = notice_queue(tmp_path / "rq")
        config = json.loads(daemon.root.config.read_text())
        kept = {"sendmail": str(post.program), "on_trouble": "ops@example.org"}
        daemon.root.config.write_text(json.dumps({**config, **kept}))
        daemon.start()
        for name in ("one", "two"):
            script = tmp_path / name
            script.write_text(GOOD)
            script.chmod(0o755)
            daemon.create(name, script=str(script))
        for name in ("one", "two", "notice"):
            daemon.until_up(name)
        yield daemon, post, notices


def notices_of(daemon):
    """Return how many notices were sent, in whatever state they are."""
    return sum(daemon.ask_queue("notice", "num_messages").values())


def broken(daemon, tmp_path, name, is_broken=True):
    """Let the script of a queue be one that cannot be started, or start again."""
    (tmp_path / name).chmod(0o644 if is_broken else 0o755)
    if is_broken:
        daemon.ask_queue(name, "create_message", {"dest": name})
    daemon.ask_queue(name, "wake")
    faults = [(name, Fault.SCRIPT_ERROR)] if is_broken else []

    def seen():
        there = asyncio.run(troubles(daemon.root))
        return [(t.who, t.fault) for t in there if t.who == name] == faults

    wait_until(seen, 60)


def test_what_is_badly_wrong_is_told_once_and_that_it_is_over(house, tmp_path):
    daemon, post, _ = house
    clock = Clock(daemon.root)
    clock.look()
    assert asyncio.run(troubles(daemon.root)) == []
    for name in ("one", "two"):
        broken(daemon, tmp_path, name)
    clock.look()
    assert notices_of(daemon) == 0  # it may pass
    clock.look()
    wait_until(lambda: len(post.raw()) == 1, 60)
    assert "2 queues (one, two) cannot start their scripts" in post.bodies()[0]
    again = Clock(daemon.root)  # after a restart, nothing is told again
    for looker in (clock, again, again):
        looker.look()
    for name in ("one", "two"):
        broken(daemon, tmp_path, name, is_broken=False)
    again.look()
    again.look()
    wait_until(lambda: len(post.raw()) == 2, 60)
    assert "what was wrong is over" in post.subjects()[1]
    again.look()
    again.look()
    assert notices_of(daemon) == 2
    assert json.loads(daemon.root.told_troubles.read_text())["told"] == {}


def test_a_notice_that_was_sent_and_not_noted_is_sent_once(house, tmp_path):
    daemon, post, _ = house
    broken(daemon, tmp_path, "one")
    for _ in range(2):  # the second knows nothing of the first
        clock = Clock(daemon.root)
        clock.look()
        clock.look()
        daemon.root.told_troubles.unlink()
    wait_until(post.raw, 60)
    assert notices_of(daemon) == 1


def test_failed_messages_and_what_a_person_wants_are_no_alarm(house, tmp_path):
    daemon, _, _ = house
    (tmp_path / "one").write_text("#!/bin/sh\nexit 3\n")
    daemon.ask_queue("one", "create_message", {"dest": "one"})
    wait_until(lambda: daemon.ask_queue("one", "num_messages")["err"] == 1, 60)
    assert daemon.ask("pause_queue", "two") == ["ok", "two"]
    assert asyncio.run(troubles(daemon.root)) == []


def test_addresses_that_are_told_are_hidden_below_admin():
    settings = {
        "on_trouble": ["https://hooks.example/T00/sesame"],
        "daily": {"at": "07:00", "to": ["https://hooks.example/T00/sesame"]},
    }
    assert "sesame" not in json.dumps(secrets.masked(settings))
