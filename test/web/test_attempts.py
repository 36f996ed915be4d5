"""The attempts on a message over HTTP: how each ended, and its part of the log."""

import pytest
from harness.waiting import wait_until
from harness.web_server import served

pytestmark = pytest.mark.system
TRIES = """echo "this is $RQ_COUNT"
[ "$RQ_COUNT" -ge 1 ] && { echo result of two >&3; echo done well >&3; exit; }
exit 75
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("attempts")) as web:
        setting = {"on": [75], "wait": 0}
        web.queue(TRIES, "again", retry=setting)
        web.queue("exit 75", "waits", retry={"on": [75], "times": 4, "wait": 900})
        yield web


@pytest.fixture(scope="module")
def place(web):
    """Return the address of a message that was tried twice, below /api/v1."""
    msg_id = web.send("again")
    path = f"/api/v1/queues/again/messages/{msg_id}"
    wait_until(lambda: web.get(path).json["state"] == "done")
    return path


def test_each_attempt_is_told(web, place):
    rows = web.get(f"{place}/attempts").json["attempts"]
    assert [(row["attempt"], row["how"]) for row in rows] == [
        (1, "exit status 75"),
        (2, "done: well"),
    ]
    assert rows[1]["result"] == "of two"
    assert web.get(place).json["result"]["result"] == "of two"


def test_the_log_is_given_whole_and_by_attempts(web, place):
    whole = web.get(f"{place}/log")
    parts = [web.get(f"{place}/log?attempt={number}") for number in (1, 2)]
    assert whole.body == parts[0].body + parts[1].body
    for number, part in enumerate(parts):
        assert (part.status, part.text.count("this is")) == (200, 1)
        assert f"this is {number}\n" in part.text


def test_what_is_not_there_is_named(web, place):
    answer = web.get(f"{place}/log?attempt=3")
    assert answer.status == 404
    assert "attempt 3; those are 1, 2" in answer.text
    assert web.get(f"{place}/log?attempt=0").status == 422
    gone = place.rpartition("/")[0] + "/20200101.0000.00.000.1/attempts"
    assert web.get(gone).status == 404


def test_the_pages_tell_them(web, place):
    msg_id = place.rpartition("/")[2]
    page = web.get(f"/q/again/{msg_id}").text
    assert "exit status 75" in page
    assert f"/q/again/{msg_id}/log?attempt=1" in page
    log = web.get(f"/q/again/{msg_id}/log?attempt=1").text
    assert "this is 0" in log
    assert "this is 1" not in log
    assert f"/q/again/{msg_id}/log?attempt=2" in web.get(f"/q/again/{msg_id}/log").text


def test_a_message_that_waits_tells_its_next_attempt(web):
    msg_id = web.send("waits")
    path = f"/api/v1/queues/waits/messages/{msg_id}"
    told = wait_until(lambda: web.get(path).json.get("next_attempt"))
    assert (told["attempt"], told["of"]) == (2, 5)
    assert told["text"] in web.get(f"/q/waits/{msg_id}").text
    assert told["text"] in web.get("/q/waits?tab=que").text
