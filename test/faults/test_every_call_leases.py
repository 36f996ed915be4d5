"""Every call that a queue makes for leases fails once: an end that was answered counts,
and nothing stays in run.

    RQ_FAULTS_EVERY=1 ./test/run_tests.sh faults -k every_call_leases

takes every call; else a sample.
"""

from __future__ import annotations

import base64

import pytest
from harness.failing_calls import Story, each_may_fail, sampled

pytestmark = [pytest.mark.process, pytest.mark.slow]

LATER = 9999
SAMPLE = sampled(6)
ENDS = (
    {"word": "done"},
    {"word": "err"},
    {"word": "resend", "delay": LATER},
    {"word": "later", "delay": LATER},
)


def live(life):
    for _ in range(len(ENDS) + 2):
        life.submit()
    reply = life.ask("lease", count=len(ENDS) + 2, seconds=2) or {"leases": []}
    tokens = [taken["token"] for taken in reply["leases"]]
    life.ask("start", tokens=tokens)
    life.ask("renew", tokens=tokens, seconds=3)
    for token in tokens[:2]:
        data = base64.b64encode(b"printed\n").decode()
        life.ask("log", token=token, offset=0, data=data)
        life.ask("progress", token=token, text="half of it")
    files = handed_in(life, tokens[0]) if tokens else {}
    for token, said in zip(tokens, ENDS, strict=False):
        more = {"files": files} if said == ENDS[0] and files else {}
        end(life, {"token": token, **said, **more})
    for token in tokens[len(ENDS) : len(ENDS) + 1]:
        life.ask("release", tokens=[token])
    life.rest()


def handed_in(life, token):
    letter = str(life.queue.site.root.path / "letter")
    row = life.ask("file", token=token, name="letter", pathname=letter)
    return {"letter": row["sha256"]} if row and row["ok"] else {}


def end(life, finish):
    """End an attempt; what was answered holds whenever it is asked again."""
    reply = life.ask("finish", finishes=[finish])
    [row] = reply["results"] if reply else [{"ok": False}]
    if row["ok"]:
        life.later.append(lambda: stands(life, finish, row["state"]))


def stands(life, finish, state):
    [row] = life.queue.ok("finish", {"finishes": [finish]})["results"]
    assert (row["ok"], row["state"]) == (True, state), row


STORY = Story(live, settings={"num_workers": 0, "pull": {}})


def test_each_call_may_fail_once_and_an_end_counts(library, calls, tmp_path):
    wrong = each_may_fail(STORY, calls, tmp_path, library, SAMPLE)
    assert not wrong, "\n".join(wrong)
