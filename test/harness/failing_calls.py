"""Short lives of queues in which calls fail: a story is told once to count its calls, then
again with the n-th failing.

Whatever n is: each request is answered or the process has ended, and once the disk is well
again everything that was promised is there, once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.extent import FULL
from harness.kills import SCRIPT, Queue, site_at
from harness.queues import short
from harness.waiting import wait_until
from rq.errors import OutcomeUnknown, Unreachable

ACTS = {
    "fail": "echo 'err by design' >&3; exit 0",
    "resend": '[ "$RQ_COUNT" -ge 1 ] || { echo "resend 0-again" >&3; exit 0; }',
}
ERRORS = [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES]
SEED = int(os.environ.get("RQ_TEST_SEED", "6"))
EVERY = int(os.environ.get("RQ_FAULTS_EVERY", "0"))


def sampled(calls: int) -> int:
    """Return of how many calls a story is told: of all that are asked for in CI, of half
    as many every day."""
    return calls if FULL else calls // 2


SAMPLE = sampled(14)
Calls = list[str]  # each `NUMBER CALL PATH`


class Life:
    """A short life of a queue, in which nothing need succeed."""

    def __init__(self, queue: Queue, dest: str = "t") -> None:
        self.queue = queue
        self.dest = dest
        self.promised: list[str] = []  # answered: accepted
        self.gone: set[str] = set()  # asked to be removed
        self.later: list[Callable[[], None]] = []  # to be asked when the disk is well
        self.unknown = 0

    def ask(self, command: str, **arg: Any) -> Any:
        """Return the answer; a refusal is a sentence, and silence means its death."""
        try:
            word, answer = (*self.queue.ask(command, arg, timeout=60), None)[:2]
        except (OutcomeUnknown, Unreachable):
            self.unknown += 1
            wait_until(self.is_over, 30)
            return None
        if word != "ok":
            assert "the command failed" not in answer, (command, self.queue.log())
            return None
        return answer

    def accepted(self, command: str, **arg: Any) -> str | None:
        answer = self.ask(command, **arg)
        return short(answer) if answer else None

    def submit(self, **fields: Any) -> str | None:
        asked = {"dest": self.dest, "max_count": 9, **fields}
        msg_id = self.accepted("create_message", **asked)
        self.promised += [msg_id] if msg_id else []
        return msg_id

    def attach(self) -> None:
        msg_id = self.accepted("prep_message", dest=self.dest)
        letter = str(self.queue.site.root.path / "letter")
        if not msg_id or not self.ask("attach_message", msg_id=msg_id, pathname=letter):
            return
        if self.ask("commit_message", msg_id=msg_id):
            self.promised.append(msg_id)

    def end(self, msg_ids: list[str], *states: str) -> None:
        """Wait until messages have ended so, each tried again without delay."""
        for msg_id in msg_ids:
            wait_until(lambda one=msg_id: self._hurried(one) in states, 60)

    def _hurried(self, msg_id: str) -> str:
        state = self.queue.state(msg_id)
        if state == "que":
            self.queue.ask("run_message", {"msg_id": msg_id})
        return state

    def is_over(self) -> bool:
        process = self.queue.process
        return process is None or process.poll() is not None

    def rest(self) -> None:
        """Wait until nothing is at work, or nobody lives."""

        def idle() -> bool:
            if self.is_over():
                return True
            with contextlib.suppress(OutcomeUnknown, Unreachable):
                counts = self.queue.ask("num_messages", timeout=60)
                return isinstance(counts, dict) and not counts["run"]
            return False

        wait_until(idle, 60)


@dataclass(frozen=True)
class Story:
    """What a queue lives through."""

    tell: Callable[[Life], None]
    script: str = SCRIPT
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    at: str = "queue"  # the directory of the root on whose files calls fail


def run(
    story: Story, path: Path, library: Path, first: int, code: int, number: int = 1
) -> Calls:
    """Let a queue live while calls `first` and following fail; prove; return the calls."""
    with site_at(path) as site:
        for name, text in ACTS.items():
            site.act(name, text)
        (path / "letter").write_text("dear all\n")
        settings = {"num_workers": 2, **story.settings}
        queue = site.queue(script=story.script, **settings)
        env = {
            **nth(library, f"{path}/{story.at}/", path / "calls", first, code, number),
            "TEST_CHECKPOINT_SECONDS": "0.3",
            **story.env,
        }
        queue.start(crash_at="never", **env)
        life = Life(queue)
        if queue.said == "\n":
            story.tell(life)
        ended(queue)
        calls = (path / "calls").read_text().splitlines()
        queue.start(**story.env)
        life.rest()
        for ask in life.later:
            ask()
        removed = [one for one in life.promised if not queue.places(one)]
        assert set(removed) <= life.gone, f"lost: {removed}; {failed(calls, first)}"
        queue.promised = [one for one in life.promised if one not in removed]
        clear_refused(queue)
        queue.prove()
        return calls


def nth(
    library: Path, root: str, log: Path, first: int, code: int, number: int = 1
) -> dict[str, str]:
    """Return the environment in which calls on files under `root` fail."""
    return {
        "LD_PRELOAD": str(library),
        "NTH_ROOT": root,
        "NTH_LOG": str(log),
        "NTH_AT": str(first),
        "NTH_FOR": str(number),
        "NTH_ERRNO": str(code),
    }


def clear_refused(queue: Queue) -> None:
    """Delete, as an operator does, what `check` finds half made in prep: it was refused,
    and when its removal failed, too, it stays."""
    for one in queue.ok("check")["problems"]:
        if one["kind"] == "torn" and one["text"].endswith("(in prep)"):
            assert one["subject"] not in queue.promised
            queue.ok("delete_message", {"msg_id": one["subject"]})


def ended(queue: Queue) -> None:
    """End what still lives, as an operator does."""
    process = queue.process
    if process is not None and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
            return
        raise AssertionError(f"it does not stop: {queue.log()}")


def failed(calls: Calls, first: int) -> Calls:
    return [one for one in calls if int(one.split()[0]) == first]


def chosen(calls: Calls, sample: int = SAMPLE) -> list[tuple[int, int]]:
    """Give (number, error): of each kind of call some, the same every day."""
    source = random.Random(SEED)
    if EVERY:
        return [(n, source.choice(ERRORS)) for n in range(1, len(calls) + 1, EVERY)]
    by_kind: dict[str, list[int]] = {}
    for one in calls:
        number, kind = one.split()[:2]
        by_kind.setdefault(kind, []).append(int(number))
    kinds = sorted(by_kind)
    picked = [kinds[at % len(kinds)] for at in range(sample)]
    # One that is picked twice fails once.
    return list(
        {source.choice(by_kind[one]): source.choice(ERRORS) for one in picked}.items()
    )


def each_may_fail(
    story: Story, calls: Calls, path: Path, library: Path, sample: int = SAMPLE
) -> list[str]:
    """Tell the story with one failing call after the other; return what went wrong."""
    wrong = []
    for number, code in chosen(calls, sample):
        root = path / f"n{number}"
        try:
            run(story, root, library, number, code)
        except AssertionError as error:
            which = failed((root / "calls").read_text().splitlines(), number)
            wrong.append(f"{which} with {errno.errorcode[code]}: {error}")
    return wrong


def many_may_fail(
    story: Story, calls: Calls, path: Path, library: Path, code: int
) -> None:
    """Tell the story while forty calls fail from one on."""
    source = random.Random(code + 1000 * SEED)
    first = source.randrange(1, len(calls))
    try:
        run(story, path, library, first, code, 40)
    except AssertionError as error:
        raise AssertionError(f"from call {first} of {len(calls)}: {error}") from error
