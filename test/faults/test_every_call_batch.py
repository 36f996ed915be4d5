"""Every call that a queue with batches makes fails once: each message ends, and once.

    RQ_FAULTS_EVERY=1 ./test/run_tests.sh faults -k every_call_batch

takes every call; else a sample.
"""

from __future__ import annotations

import errno

import pytest
from harness.failing_calls import Story, each_may_fail, many_may_fail, sampled
from harness.kills import BATCH

pytestmark = pytest.mark.process

SAMPLE = sampled(10)
# Says something of some messages, and of the rest at its end.
SCRIPT = (
    BATCH
    + r"""word() { sed -n "s/^{\"msg_id\":\"$1\".*\"param1\":\"\([a-z]*\)\".*/\1/p" "$RQ_BATCH_FILE"; }
for id in "${ids[@]}"; do
    case $(word "$id") in
        early) echo "msg $id done early" >&3 ;;
        fail) echo "msg $id err by design" >&3 ;;
        again) [ -e "$RQ_ROOT/again.$id" ] || echo "msg $id resend 0-again" >&3
               : > "$RQ_ROOT/again.$id" ;;
    esac
done
echo "done in the end" >&3
"""
)


def live(life):
    for act in ("early", "fail", "again", "", ""):
        life.submit(param1=act)
    life.attach()
    life.rest()
    for _ in range(2):
        life.submit()
    life.rest()
    life.later.append(lambda: life.end(life.promised, "done", "err"))


STORY = Story(live, script=SCRIPT, settings={"batch": {"max": 3, "wait": 0.1}})


def test_each_call_may_fail_once_and_each_message_ends_once(library, calls, tmp_path):
    wrong = each_may_fail(STORY, calls, tmp_path, library, SAMPLE)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_many_calls_in_a_row_may_fail(library, calls, tmp_path, code):
    many_may_fail(STORY, calls, tmp_path / "root", library, code)
