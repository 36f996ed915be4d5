"""What hinders the relay on its own host is tried again, and not for ever."""

import json
import os
import subprocess
import sys
import time

import pytest
from harness.ancestor import message_at
from harness.checkout import CHECKOUT
from harness.limits import no_descriptors

from rq.errors import BadConfig, Refused
from rq.relay import handover
from rq.scripts.pipe import Verb

DAY = 86400.0
WRONG = "config/peers.json: mode 0644, it must be 0600"


@pytest.fixture
def job(tmp_path):
    (tmp_path / "ID/job").mkdir(parents=True)
    return tmp_path / "ID/job"


def age(job, days):
    """Let the first attempt have been so many days ago."""
    kept = json.loads((job / "relay.json").read_text())
    (job / "relay.json").write_text(
        json.dumps({**kept, "since": kept["since"] - days * DAY})
    )


def test_a_config_that_cannot_be_used_is_tried_for_seven_days(job):
    error = BadConfig(WRONG)
    assert handover.refused(job, error) == (Verb.LATER, f"60-{WRONG}")
    age(job, 6.9)
    assert handover.refused(job, error) == (Verb.LATER, f"60-{WRONG}")
    age(job, 0.2)
    given_up = Verb.ERR, f"gave up after 7 days: {WRONG}"
    assert handover.refused(job, error) == given_up


def test_an_error_that_nobody_foresaw_is_tried_for_seven_days(job):
    reason = "OSError: [Errno 5] Input/output error"
    assert handover.hindered(job, reason) == (Verb.LATER, f"60-{reason}")
    age(job, 8)
    assert handover.hindered(job, reason) == (
        Verb.ERR,
        f"gave up after 8 days: {reason}",
    )


def test_what_is_kept_and_cannot_be_read_now_is_tried_later_and_stays(job):
    handover.hindered(job, "first")
    before = (job / "relay.json").read_bytes()
    reason = "OSError: [Errno 24] Too many open files"
    with no_descriptors():
        assert handover.hindered(job, reason) == (Verb.LATER, f"60-{reason}")
    assert (job / "relay.json").read_bytes() == before


def test_what_can_never_travel_ends_at_once(job):
    assert handover.refused(job, Refused("count")) == (Verb.ERR, "count")
    assert not (job / "relay.json").exists()


def test_its_script_gives_up_when_the_config_stays_wrong(tmp_path):
    msg_id = "20260102.0304.05.006.7"
    place = tmp_path / "queue/relay/run" / msg_id
    job = message_at(place, "relay", "run", dest="http://h:1/q/x") / "job"
    job.mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.json").write_text("{")
    since = time.time() - 8 * DAY
    (job / "relay.json").write_text(json.dumps({"since": since}))
    env = {"RQ_ROOT": str(tmp_path), "RQ_MSG_ID": msg_id, "RQ_FULL_MSG_ID": "x"}
    env["PYTHONPATH"] = str(CHECKOUT)
    said, theirs = os.pipe()
    with os.fdopen(said, "rb") as words:
        # As the owner hands it over: its words go to descriptor 3.
        line = f'exec "{sys.executable}" -m rq.relay 3>&{theirs}'
        command = ["bash", "-c", line]
        subprocess.run(
            command, cwd=job, env={**os.environ, **env}, pass_fds=[theirs], check=True
        )
        os.close(theirs)
        assert words.read().startswith(b"err gave up after 8 days: ")
