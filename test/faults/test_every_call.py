"""Every call that a queue makes fails once, with each error that a machine can give.

A run is counted first; then it is repeated with the n-th call failing. Whatever n is:
each request is answered or the process has ended, and once the disk is well again
everything that was promised is there, once.

    RQ_FAULTS_EVERY=1 ./test/run_tests.sh faults -k every_call

takes every n (10: every tenth); else a sample that is the same every day, RQ_TEST_SEED takes another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess

import pytest
from crashing import short, site_at
from supervising import wait_until

from rq.errors import OutcomeUnknown, Unreachable

pytestmark = pytest.mark.process

ACTS = {
    "fail": "echo 'err by design' >&3; exit 0",
    "resend": '[ "$RQ_COUNT" -ge 1 ] || { echo "resend 0-again" >&3; exit 0; }',
}
ERRORS = [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES]
LATER = 4e9
SAMPLE = 14
SEED = int(os.environ.get("RQ_TEST_SEED", "6"))
EVERY = int(os.environ.get("RQ_FAULTS_EVERY", "0"))


class Life:
    """A short life of a queue, in which nothing need succeed."""

    def __init__(self, queue):
        self.queue = queue
        self.promised = []  # answered: accepted
        self.gone = set()  # asked to be removed
        self.unknown = 0

    def ask(self, command, **arg):
        """Return the answer; a refusal is a sentence, and silence means its death."""
        try:
            word, answer = (*self.queue.ask(command, arg, timeout=60), None)[:2]
        except (OutcomeUnknown, Unreachable):
            self.unknown += 1
            wait_until(lambda: self.queue.process.poll() is not None, 30)
            return None
        if word != "ok":
            assert "the command failed" not in answer, (command, self.queue.log())
            return None
        return answer

    def accepted(self, command, **arg):
        answer = self.ask(command, **arg)
        return short(answer) if answer else None

    def submit(self, **fields):
        msg_id = self.accepted("create_message", dest="t", max_count=9, **fields)
        self.promised += [msg_id] if msg_id else []
        return msg_id

    def live(self):
        for act in ("", "fail", "resend"):
            self.submit(param1=act)
        self.attach()
        waiting = [self.submit(due=LATER) for _ in range(3)]
        if waiting[0]:
            self.gone.add(waiting[0])
            self.ask("delete_message", msg_id=waiting[0])
        self.rest()
        failed = self.ask("list", state="err", limit=10) or []
        for one in failed[:1]:
            self.ask("retry_message", msg_id=one["msg_id"])
        self.ask("seal")
        self.submit()
        self.rest()

    def attach(self):
        msg_id = self.accepted("prep_message", dest="t")
        letter = str(self.queue.site.root.path / "letter")
        if not msg_id or not self.ask("attach_message", msg_id=msg_id, pathname=letter):
            return
        if self.ask("commit_message", msg_id=msg_id):
            self.promised.append(msg_id)

    def rest(self):
        """Wait until nothing is at work, or nobody lives."""

        def idle():
            if self.queue.process.poll() is not None:
                return True
            with contextlib.suppress(OutcomeUnknown, Unreachable):
                counts = self.queue.ask("num_messages", timeout=60)
                return isinstance(counts, dict) and not counts["run"]
            return False

        wait_until(idle, 60)


@pytest.fixture(scope="module")
def library(tmp_path_factory, compiled):
    return compiled("nth.c", tmp_path_factory.mktemp("nth"))


def run(path, library, first, code, number=1):
    """Let a queue live while calls `first` and following fail; prove; return the calls."""
    with site_at(path) as site:
        for name, text in ACTS.items():
            site.act(name, text)
        (path / "letter").write_text("dear all\n")
        queue = site.queue(num_workers=2)
        env = {
            "LD_PRELOAD": str(library),
            "NTH_ROOT": f"{path}/queue/",
            "NTH_LOG": str(path / "calls"),
            "NTH_AT": str(first),
            "NTH_FOR": str(number),
            "NTH_ERRNO": str(code),
            "TEST_CHECKPOINT_SECONDS": "0.3",
        }
        queue.start(crash_at="never", **env)
        life = Life(queue)
        if queue.said == b"\n":
            life.live()
        ended(queue)
        calls = (path / "calls").read_text().splitlines()
        queue.start()
        life.rest()
        removed = [one for one in life.promised if not queue.places(one)]
        assert set(removed) <= life.gone, f"lost: {removed}; {failed(calls, first)}"
        queue.promised = [one for one in life.promised if one not in removed]
        clear_refused(queue)
        queue.prove()
        return calls


def clear_refused(queue):
    """Delete, as an operator does, what `check` finds half made in prep: it was refused,
    and when its removal failed, too, it stays."""
    for one in queue.ok("check")["problems"]:
        if one["kind"] == "torn" and one["text"].endswith("(in prep)"):
            assert one["subject"] not in queue.promised
            queue.ok("delete_message", {"msg_id": one["subject"]})


def ended(queue):
    """End what still lives, as an operator does."""
    if queue.process.poll() is None:
        queue.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            queue.process.wait(30)
            return
        raise AssertionError(f"it does not stop: {queue.log()}")


def failed(calls, first):
    return [one for one in calls if int(one.split()[0]) == first]


@pytest.fixture(scope="module")
def calls(library, tmp_path_factory):
    """Return the calls of a life in which none fails."""
    found = run(tmp_path_factory.mktemp("count") / "root", library, 0, 0)
    assert len(found) > 100
    return found


def chosen(calls):
    """Give (number, error): of each kind of call some, the same every day."""
    source = random.Random(SEED)
    if EVERY:
        return [(n, source.choice(ERRORS)) for n in range(1, len(calls) + 1, EVERY)]
    by_kind = {}
    for one in calls:
        number, kind = one.split()[:2]
        by_kind.setdefault(kind, []).append(int(number))
    kinds = sorted(by_kind)
    picked = [kinds[at % len(kinds)] for at in range(SAMPLE)]
    return [(source.choice(by_kind[one]), source.choice(ERRORS)) for one in picked]


def test_each_call_may_fail_once_and_nothing_promised_is_lost(library, calls, tmp_path):
    wrong = []
    for number, code in chosen(calls):
        root = tmp_path / f"n{number}"
        try:
            run(root, library, number, code)
        except AssertionError as error:
            which = failed((root / "calls").read_text().splitlines(), number)
            wrong.append(f"{which} with {errno.errorcode[code]}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_many_calls_in_a_row_may_fail(library, calls, tmp_path, code):
    source = random.Random(code + 1000 * SEED)
    first = source.randrange(1, len(calls))
    try:
        run(tmp_path / "root", library, first, code, 40)
    except AssertionError as error:
        raise AssertionError(f"from call {first} of {len(calls)}: {error}") from error
