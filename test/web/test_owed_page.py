"""What could not be delivered is on the pages, and a person's word is taken there."""

import pytest
from harness.owed import Owing, in_doubt
from harness.queues import kept, running_queue
from harness.waiting import wait_until
from harness.web_server import web_alone

pytestmark = pytest.mark.process

URL = "https://hooks.example/<b>x"


@pytest.fixture
def a(tmp_path):
    """A queue that owes a webhook which nobody takes."""
    with kept(Owing(tmp_path, "a", "obey")) as queue:
        in_doubt(queue, param1="echo done >&3", post_run_webhook=[URL])
        yield queue


@pytest.fixture
def web(a):
    with web_alone(a.root.path) as web:
        yield web


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/q/a", "/relay"])
def test_it_is_listed_on_the_pages_of_the_queue_and_of_the_relay(a, web, path):
    [one] = a.owed()
    shown = web.page(path)
    for text in (one["key"], "https://hooks.example/(hidden)", "in doubt", "webhook"):
        assert text in shown
    assert "could not deliver a copy or webhook" in web.page("/")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["delivered", "dropped"])
def test_the_word_of_a_person_is_taken(a, web, verb):
    [one] = web.get("/relay.json").json["owed"]
    asked = web.get(f"{one['path']}/confirm/{verb}", Accept="application/json").json
    answer = web.post(asked["post"], asked["fields"])
    assert (answer.status, answer.headers["location"]) == (303, "/q/a")
    assert a.owed() == []
    assert web.get("/q/a/queue.json").json["owed"] == []
    again = web.post(asked["post"], {**asked["fields"], "x_format": "json"})
    assert again.json[1].startswith("no copy or webhook")


@pytest.mark.slow
def test_it_is_sent_again(a, web):
    [one] = web.get("/relay.json").json["owed"]
    asked = web.get(f"{one['path']}/confirm/again", Accept="application/json").json
    with running_queue(a.root.path, "#!/bin/sh\necho done >&3\n", "webhook"):
        assert web.post(asked["post"], asked["fields"]).status == 303
        wait_until(lambda: a.owed() == [], 30)


@pytest.mark.slow
def test_what_is_no_question_is_not_there(web):
    assert web.get("/owed/a/x-1-0/confirm/forget").status == 404
    assert web.get("/owed/nowhere/x-1-0/confirm/again").status == 404
    answer = web.post("/owed/a/x-1-0", {"_method": "again", "x_format": "json"})
    assert answer.json[0] == "fail"
