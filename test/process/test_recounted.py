"""Folders of ended messages that others remove are soon counted no more, and it is said
what is counted wrong meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.cli import rq
from harness.queues import RunningQueue, kept, running_queue, short
from harness.supervisor import Daemon, daemon_on
from harness.waiting import wait_until

pytestmark = pytest.mark.process

WRONG = "counted 2, there are 1, as if others had removed or moved folders"


def remove(queue: RunningQueue, msg_id: str) -> None:
    shutil.rmtree(queue.folder(msg_id))


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_what_was_removed_while_a_queue_ran_is_not_counted_after_a_start(
    tmp_path: Path, end: str
) -> None:
    with running_queue(tmp_path) as queue:
        done = [queue.run(param1="echo done >&3")["msg_id"] for _ in range(3)]
        failed = queue.run(param1="echo err no >&3")["msg_id"]
        queue.restart()  # else a crash makes them again, from the journal
        remove(queue, done[1])
        remove(queue, failed)
        getattr(queue, end)()
        queue.start()
        wait_until(lambda: queue.ask("num_messages")["done"] == 2)
        counts = queue.ok("detail")["counts"]
        assert (counts["done"], counts["err"], counts["errack"]) == (2, 0, 0)
        queue.check()
        queue.restart()
        assert queue.ask("num_messages")["done"] == 2


def test_no_more_goes_than_is_beyond_the_number_when_others_have_removed_some(
    tmp_path: Path,
) -> None:
    with running_queue(tmp_path, retention={"done": {"count": 2}}) as queue:
        sent = [queue.run(param1="echo done >&3")["msg_id"] for _ in range(4)]
        for msg_id in sent[:2]:
            remove(queue, msg_id)
        wanted = {"state": "done", "keep": 2}
        assert queue.ok("expire", wanted) == {"expired": 0, "more": False}
        remove(queue, sent[2])
        queue.run(param1="echo done >&3")
        queue.ok("check")  # its folder is there
        assert queue.ok("expire", {}) == {"expired": 0, "more": False}
        assert queue.ask("num_messages")["done"] == 2


def test_each_hour_it_is_looked_whether_the_counts_are_right(tmp_path: Path) -> None:
    queue = RunningQueue(tmp_path, "t", "obey")
    queue.env["TEST_HOUR"] = "0.4"
    with kept(queue):
        remove(queue, queue.run(param1="echo done >&3")["msg_id"])
        wait_until(lambda: queue.ask("num_messages")["done"] == 0, 60)
        said = "goes on with those that there are: state=done counted=1 there=0"
        assert said in queue.log()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Give an RQ whose queue counts two in done where there is one."""
    with daemon_on(tmp_path) as daemon:
        daemon.start()
        daemon.create("a")
        daemon.until_up("a")
        for _ in range(2):
            _, full_id = daemon.ask_queue("a", "create_message", {"dest": "a"})
        wait_until(lambda: daemon.ask_queue("a", "num_messages")["done"] == 2)
        assert daemon.ask_queue("a", "check") == ["ok", {"problems": []}]
        shutil.rmtree(only(daemon, short(full_id)))
        yield daemon


def only(daemon: Daemon, msg_id: str = "*") -> Path:
    (path,) = daemon.root.queue("a").path.glob(f"done/*/*/*/{msg_id}")
    return path


def doctor(daemon: Daemon) -> list[str]:
    said = rq("doctor", "--quick", "--json", root=daemon.root.path).stdout
    return [line for line in json.loads(said)["warnings"] if "queue a" in line]


def checked(daemon: Daemon, *words: str) -> tuple[int, list[tuple[str, str]], str]:
    done = rq("check", "a", "--json", *words, root=daemon.root.path)
    rows = [(row["kind"], row["text"]) for row in json.loads(done.stdout)]
    return done.returncode, rows, done.stderr


def test_what_is_counted_wrong_is_said_and_a_queue_that_runs_counts_again(
    daemon: Daemon,
) -> None:
    said = f"{WRONG}: `rq check --fix` counts again"
    assert checked(daemon) == (9, [("count", said)], "")
    assert doctor(daemon) == [f"queue a, done: {said}"]
    assert checked(daemon, "--fix") == (9, [("mended", "counted 2, there are 1")], "")
    assert checked(daemon, "--fix") == (0, [], "")
    assert doctor(daemon) == []
    only(daemon).chmod(0o757)
    code, rows, note = checked(daemon, "--fix")
    assert (code, [kind for kind, _ in rows]) == (9, ["mode"])
    assert "a: a running queue counts again, and no more; stop RQ" in note


def test_what_a_stopped_queue_counts_wrong_is_said_and_mended(daemon: Daemon) -> None:
    assert daemon.stop() == 0
    [said] = doctor(daemon)
    assert said.startswith(f"queue a, done: {WRONG}")
    code, rows, _ = checked(daemon)
    assert (code, [kind for kind, _ in rows]) == (9, ["count"])
    assert checked(daemon, "--fix")[:2] == (0, [])
    assert doctor(daemon) == []
