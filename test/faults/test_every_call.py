"""Every call that a queue makes fails once, with each error that a machine can give.

A run is counted first; then it is repeated with the n-th call failing. Whatever n is:
each request is answered or the process has ended, and once the disk is well again
everything that was promised is there, once.

    RQ_FAULTS_EVERY=1 ./test/run_tests.sh faults -k every_call

takes every n (10: every tenth); else a sample that is the same every day, RQ_TEST_SEED takes another.
"""

from __future__ import annotations

import errno

import pytest
from harness.failing_calls import ERRORS, Story, each_may_fail, many_may_fail

pytestmark = pytest.mark.process

LATER = 4e9


def live(life):
    for act in ("", "fail", "resend"):
        life.submit(param1=act)
    life.attach()
    waiting = [life.submit(due=LATER) for _ in range(3)]
    if waiting[0]:
        life.gone.add(waiting[0])
        life.ask("delete_message", msg_id=waiting[0])
    life.rest()
    for one in (life.ask("list", state="err", limit=10) or [])[:1]:
        life.ask("retry_message", msg_id=one["msg_id"])
    life.ask("seal")
    life.submit()
    life.rest()


STORY = Story(live)


def test_each_call_may_fail_once_and_nothing_promised_is_lost(library, calls, tmp_path):
    wrong = each_may_fail(STORY, calls, tmp_path, library)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_many_calls_in_a_row_may_fail(library, calls, tmp_path, code):
    many_may_fail(STORY, calls, tmp_path / "root", library, code)
