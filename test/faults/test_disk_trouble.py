"""Disks that fail, fill and turn read-only: nothing answered is lost, nothing spins."""

import contextlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from harness.kills import Site
from harness.queues import short
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown

pytestmark = pytest.mark.process

LATER = 4e9


class Asking(threading.Thread):
    """Somebody who asks and waits."""

    def __init__(self, queue, command="create_message", **fields):
        super().__init__(daemon=True)
        self.queue, self.command = queue, command
        self.asked = {"dest": queue.name, **fields}
        self.answer = None
        self.start()

    def run(self):
        with contextlib.suppress(OutcomeUnknown):
            self.answer = self.queue.ask(self.command, self.asked, timeout=60)

    def accepted(self):
        self.join(45)
        assert self.answer is not None, self.queue.log()
        assert self.answer[0] == "ok", self.answer
        self.queue.promised.append(short(self.answer[1]))
        return self.queue.promised[-1]


def nothing_for(seconds, queue, *askers):
    """Watch that nobody is answered and that the process does not spin."""
    busy, until = queue.busy(), time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, seconds + 5)
    assert [one.answer for one in askers] == [None] * len(askers)
    assert queue.busy() - busy < 0.3 * seconds


def asking_held(queue, shim, **fields):
    """Hold all syncs, and ask; return who asks when the queue stands in its sync."""
    before = len(shim.calls("fdatasync"))
    shim.set("hold.fdatasync")
    asking = Asking(queue, **fields)
    wait_until(lambda: len(shim.calls("fdatasync")) > before)
    return asking


# ---- nothing is promised before it is on disk


def test_no_answer_leaves_before_the_sync_of_its_event_has_returned(site, shim):
    queue = site.queue().start(**shim.env)
    known = queue.submit(due=LATER)
    assert queue.ask("ping") == [
        "pong"
    ]  # its turn is over, and not in the sync to come
    asking = asking_held(queue, shim, due=LATER)
    nothing_for(0.5, queue, asking)
    reading = Asking(queue, "get_message", msg_id=known)
    nothing_for(0.3, queue, asking, reading)
    shim.clear()
    asking.accepted()
    reading.join(45)
    assert reading.answer[0] == "ok"
    queue.prove()


def test_no_script_starts_before_the_acceptance_of_its_message_is_on_disk(site, shim):
    queue = site.queue().start(**shim.env)
    asking = asking_held(queue, shim)
    nothing_for(1.5, queue, asking)  # a script that starts at all has said so then
    assert site.ran("start") == []
    shim.clear()
    queue.until(asking.accepted(), "done")
    queue.prove()


def test_every_answer_costs_a_sync_of_the_segment(site, shim):
    queue = site.queue().start(**shim.env)
    before = len(shim.calls("fdatasync", "/journal/"))
    for _ in range(5):
        queue.submit(due=LATER)
    assert len(shim.calls("fdatasync", "/journal/")) - before >= 5
    queue.prove()


def test_an_attachment_is_synced_with_its_directories_before_the_commit_is(
    site, shim, tmp_path
):
    queue = site.queue().start(**shim.env)
    (tmp_path / "letter").write_text("dear all\n")
    msg_id = queue.prepare()
    queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(tmp_path / "letter")})
    done = len(shim.calls("fsync"))
    queue.ok("commit_message", {"msg_id": msg_id})
    synced = [path.partition("/queue/t/")[2] for path in shim.calls("fsync")[done:]]
    for path in ("/attach/letter", "/attach", ""):
        assert f"prep/{msg_id}{path}" in synced
    assert "prep" in synced
    queue.promised.append(msg_id)
    queue.until(msg_id, "done")
    queue.prove()


def test_a_checkpoint_is_written_only_after_a_sync_of_the_file_system(site, shim):
    queue = site.queue().start(**shim.env)
    queue.submit(due=LATER)
    shim.set("hold.syncfs")
    queue.process.terminate()
    wait_until(lambda: shim.calls("syncfs"))
    assert not queue.dir.checkpoint.exists()
    shim.clear()
    assert queue.process.wait(60) == 0
    assert json.loads(queue.dir.checkpoint.read_bytes())["clean"]


# ---- syncs that fail


@pytest.mark.slow
def test_after_a_failed_sync_the_same_events_go_to_a_new_segment(site, shim):
    queue = site.queue().start(**shim.env)
    first = queue.submit(due=LATER)
    before = queue.segment()
    shim.set("fail.fdatasync")
    asking = Asking(queue, due=LATER)
    nothing_for(1.5, queue, asking)
    assert queue.ask("ping") == ["pong"]
    assert queue.ask("create_message", {"dest": "t"}) == [
        "fail",
        "the journal cannot be written: Input/output error",
    ]
    doubtful = lines(before)
    shim.clear()
    ids = {asking.accepted()}
    after = queue.segment()
    assert after != before
    twice = [one["seq"] for one in doubtful[1:] if one["msg"] in ids]
    again = [one["seq"] for one in lines(after)[1:] if one["msg"] in ids]
    assert twice
    assert set(twice) <= set(again)
    queue.restart()
    wait_until(lambda: queue.ids() == sorted([first, *ids]))
    queue.prove()


def lines(segment):
    data = segment.read_bytes().rstrip(b"\0")
    return [json.loads(one) for one in data.splitlines()]


def test_a_crash_between_a_failed_sync_and_its_repetition_keeps_the_promise(site, shim):
    queue = site.queue().start(**shim.env)
    ids = [queue.submit(due=LATER) for _ in range(2)]
    shim.set("fail.fdatasync")
    asking = Asking(queue, due=LATER)
    nothing_for(0.3, queue, asking)
    queue.kill()
    shim.clear()
    queue.start()
    asking.join(45)
    assert asking.answer is None
    wait_until(lambda: set(ids) <= set(queue.ids()))
    queue.prove()


@pytest.mark.parametrize("how", ["short.pwrite", "full.pwrite"])
def test_half_a_written_line_is_never_read_as_one(site, shim, how):
    queue = site.queue().start(**shim.env)
    first = queue.submit(due=LATER)
    shim.set(how)
    asking = Asking(queue, due=LATER)
    nothing_for(0.5, queue, asking)
    shim.clear()
    second = asking.accepted()
    queue.restart()
    wait_until(lambda: queue.ids() == sorted([first, second]))
    queue.prove()


@pytest.mark.slow
def test_who_waits_too_long_hears_that_the_outcome_is_unknown(site, shim):
    queue = site.queue().start(TEST_UNKNOWN_SECONDS="0.5", **shim.env)
    shim.set("fail.fdatasync")
    asking = Asking(queue, due=LATER)
    asking.join(20)
    assert asking.answer[0] == "fail"
    assert asking.answer[1].startswith("outcome unknown")
    refused = queue.ask("create_message", {"dest": "t"})
    assert refused[0] == "fail"
    assert "journal" in refused[1]
    shim.clear()
    wait_until(lambda: queue.ask("create_message", {"dest": "t"})[0] == "ok", 20)
    queue.prove()


def test_a_running_script_ends_though_the_journal_fails_for_a_while(site, shim):
    queue = site.queue().start(**shim.env)
    msg_id = queue.submit("hold")
    queue.until_started(msg_id)
    shim.set("fail.fdatasync")
    site.go()
    wait_until(lambda: site.ran("end", msg_id))
    nothing_for(0.5, queue)
    shim.clear()
    asked = {"msg_id": msg_id}
    wait_until(lambda: queue.ask("get_message_state", asked) == ["ok", "done"], 20)
    assert queue.show(msg_id)["count"] == 0
    assert len(site.ran("start", msg_id)) == 1
    queue.prove()


def test_a_failed_checkpoint_closes_the_queue_and_files_are_written_anew(site, shim):
    queue = site.queue().start(TEST_CHECKPOINT_SECONDS="0.2", **shim.env)
    waiting, running = queue.submit(due=LATER), queue.submit("hold")
    queue.until_started(running)
    msg = queue.dir.path / "que" / waiting / "msg"
    wait_until(msg.exists)
    wait_until(queue.dir.checkpoint.exists)
    shim.set("fail.syncfs")
    more = queue.submit(due=LATER)
    torn = queue.dir.path / "que" / more / "msg"
    wait_until(lambda: queue.ask("create_message", {"dest": "t"})[0] == "fail")
    answer = queue.ask("create_message", {"dest": "t"})
    assert answer == [
        "fail",
        "not accepted: the disk failed: [Errno 5] Input/output error",
    ]
    inode = torn.stat().st_ino
    site.go()
    assert queue.process.wait(60) == 1
    shim.clear()
    queue.start()
    wait_until(lambda: torn.stat().st_ino != inode)
    assert queue.state(running) == "done"
    assert len(site.ran("start", running)) == 1
    queue.prove()


@pytest.mark.slow
def test_when_no_segment_can_be_made_acceptance_closes_until_one_can(site, shim):
    queue = site.queue().start(TEST_TICK="0.2", **shim.env)
    running = queue.submit("hold")
    queue.until_started(running)
    shim.set("full.fsync", "journal/next")
    refusals = []

    def refused():
        answer = queue.ask(
            "create_message", {"dest": "t", "due": LATER, "x": "x" * 10**5}
        )
        if answer[0] == "ok":
            queue.promised.append(short(answer[1]))
        else:
            refusals.append(answer[1])
        return refusals

    wait_until(refused, 20)
    assert "no space for the journal: No space left on device" in refusals[0]
    site.go()
    queue.until(running, "done")
    shim.clear()
    wait_until(
        lambda: queue.ask("create_message", {"dest": "t", "due": LATER})[0] == "ok"
    )
    queue.prove()


def test_a_disk_without_room_for_a_checkpoint_does_not_end_the_queue(site, shim):
    queue = site.queue().start(TEST_CHECKPOINT_SECONDS="0.2", **shim.env)
    shim.set("full.fsync", "checkpoint.tmp")
    ids = [queue.submit(due=LATER)]
    wait_until(lambda: "no room for a checkpoint" in queue.log())
    ids.append(queue.submit(due=LATER))
    assert not queue.dir.checkpoint.exists()
    shim.clear()
    wait_until(queue.dir.checkpoint.exists)
    assert queue.ids() == ids
    queue.prove()


# ---- disks that are full


def site_on(disk, **settings):
    site = Site(disk / "root", **settings)
    site.act("hold", "hold")
    return site


def fill(queue, size):
    """Send until refused; return the refusal."""
    for _ in range(2000):
        asked = {"dest": queue.name, "due": LATER, "bulk": "x" * size}
        answer = queue.ask("create_message", asked, timeout=40)
        if answer[0] != "ok":
            return answer[1]
        queue.promised.append(short(answer[1]))
    raise AssertionError("the disk does not fill")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kept"), [(4000, 2**20), (50_000, 0)], ids=["of_folders", "of_segments"]
)
def test_a_full_disk_closes_acceptance_and_loses_nothing(disk, size, kept):
    site = site_on(disk, min_free_bytes=kept)
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(8 * 1024 * 1024))
        queue = site.queue().start(TEST_TICK="0.5")
        running = queue.submit("hold")
        queue.until_started(running)
        refusal = fill(queue, size)
        assert "space" in refusal or "full" in refusal
        nothing_for(1.5, queue)
        site.root.path.joinpath("go").touch()
        wait_until(lambda: queue.state(running) == "done", 20)
        ballast.unlink()
        wait_until(
            lambda: queue.ask("create_message", {"dest": "t", "due": LATER})[0] == "ok",
            40,
        )
        queue.prove()
    finally:
        site.close()


def test_a_disk_without_inodes_delays_folders_and_loses_nothing(few_inodes):
    site = site_on(few_inodes)
    try:
        queue = site.queue().start()
        running = queue.submit("hold")
        queue.until_started(running)
        for _ in range(100):
            queue.submit(due=LATER)
        wait_until(lambda: "No space" in queue.log())
        nothing_for(1.0, queue)
        subprocess.run(
            ["mount", "-o", "remount,nr_inodes=2000", few_inodes], check=True
        )
        site.go()
        queue.until(running, "done", 20)
        wait_until(lambda: len(queue.ids()) == 101)
        queue.prove()
    finally:
        site.close()


def test_a_queue_killed_on_a_full_disk_starts_when_room_returns(disk):
    site = site_on(disk)
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(6 * 1024 * 1024))
        queue = site.queue().start()
        fill(queue, 50_000)
        queue.kill()
        queue.start(crash_at="never")  # without room it may refuse, and must say so
        if queue.said != "\n":
            assert "space" in queue.log()
        queue.kill()
        ballast.unlink()
        queue.start()
        wait_until(lambda: len(queue.ids()) == len(queue.promised))
        queue.prove()
    finally:
        site.close()


@pytest.mark.slow
def test_a_disk_that_turned_read_only_answers_nothing_and_loses_nothing(disk):
    site = site_on(disk)
    try:
        queue = site.queue()
        os.sync()  # what the test itself has written shall not be lost
        queue.start(TEST_UNKNOWN_SECONDS="0.5")
        ids = [queue.submit(due=LATER) for _ in range(5)]
        break_file_system(disk)
        asking = Asking(queue, due=LATER)
        asking.join(20)
        assert asking.answer is None or asking.answer[0] == "fail"
        nothing_for(1.0, queue)
        queue.kill()
        mend_file_system(disk)
        queue.start()
        wait_until(lambda: set(ids) <= set(queue.ids()))
        queue.prove()
    finally:
        site.close()


def known_to_the_kernel(disk):
    """Return what the kernel shows of a file system for as long as it is in use."""
    source = subprocess.run(
        ["findmnt", "-no", "SOURCE", disk], capture_output=True, text=True, check=True
    )
    return Path("/sys/fs/ext4", source.stdout.strip().removeprefix("/dev/"))


def break_file_system(disk):
    (known_to_the_kernel(disk) / "trigger_fs_error").write_text("a test")


def mend_file_system(disk):
    image, known = disk.with_name("image"), known_to_the_kernel(disk)
    subprocess.run(["umount", disk], check=True)
    # A test beside this one may have a copy of the mount in a namespace of its own.
    wait_until(lambda: not known.exists(), 120)
    subprocess.run(["fsck.ext4", "-p", image], check=False, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
