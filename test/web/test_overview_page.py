"""The overview finds queues by name, and messages by their id, also one given twice."""

import html
import shutil

import pytest
from harness.queues import RunningQueue
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process

SCRIPT = "#!/bin/sh\necho done >&3\n"
NOBODY = "20260102.0304.05.006.7000000000007"


@pytest.fixture(scope="module")
def queues(tmp_path_factory):
    """Two queues, and an id that both have given."""
    root = tmp_path_factory.mktemp("root")
    a, b = RunningQueue(root, "a", SCRIPT), RunningQueue(root, "b", SCRIPT)
    try:
        a.start()
        a.both, a.alone = a.send(due=4e9), a.send(due=4e9)
        a.close()
        # As an operator may, while both are stopped: the folders are the truth.
        waits = b.dir.path / "que"
        waits.mkdir(parents=True, exist_ok=True)
        shutil.copytree(a.dir.path / "que" / a.both, waits / a.both)
        a.start()
        b.start()
        wait_until(lambda: b.get(a.both)["state"] == "que", 30)
        yield a, b
        a.close()
        b.close()
    finally:
        a.kill()
        b.kill()


@pytest.fixture(scope="module")
def web(queues):
    with web_alone(queues[0].root.path) as web:
        yield web


def test_an_id_leads_to_its_message(queues, web):
    a, _ = queues
    there = f"/q/a/{a.alone}"
    for text in (a.alone, f"a/{a.alone}", f"http://h:1/q/a/{a.alone}", f" {a.alone} "):
        answer = web.ask("GET", "/?find=" + text.replace(" ", "+"), Accept=BROWSER)
        assert (answer.status, answer.headers["location"]) == (303, there), text


def test_an_id_that_two_queues_have_given_leads_to_neither_but_shows_both(queues, web):
    a, _ = queues
    answer = web.get(f"/?find={a.both}", Accept=BROWSER)
    assert (answer.status, answer.kind) == (200, "text/html")
    assert "Several messages have this id" in answer.text
    for name in ("a", "b"):
        assert f'href="/q/{name}/{a.both}"' in answer.text
        one = web.get(f"/?find={name}/{a.both}", Accept=BROWSER)
        assert one.headers["location"] == f"/q/{name}/{a.both}"
    told = web.get(f"/overview.json?find={a.both}").json["found"]
    assert [one["queue"] for one in told] == ["a", "b"]
    told = web.get(f"/overview.json?find={a.alone}").json["found"]
    assert told == [{"queue": "a", "state": "que", "path": f"/q/a/{a.alone}"}]


def test_an_id_that_nobody_knows_is_said_to_be_unknown(web):
    for text in (NOBODY, f"a/{NOBODY}", f"nowhere/{NOBODY}"):
        answer = web.get(f"/?find={text}", Accept=BROWSER)
        assert answer.status == 200
        assert "No message has this id" in answer.text
        assert text in answer.text


def test_what_is_no_id_is_looked_for_among_the_names_of_queues(web):
    shown = html.unescape(web.get("/?find=%3Cb", Accept=BROWSER).text)
    assert "No queue has “<b” in its name" in shown
    assert 'data-name="a"' in web.get("/?find=A", Accept=BROWSER).text
    assert 'data-name="b"' not in web.get("/?find=A", Accept=BROWSER).text


def test_a_tile_leads_to_the_queues_in_which_its_number_was_counted(web):
    shown = web.page("/")
    assert 'href="/?show=waiting&sort=waiting#queues"' in shown
    assert 'data-name="a"' in web.page("/?show=waiting")
    assert "No queue has a message that failed." in web.page("/?show=failed")
    kept = web.page("/?show=waiting&sort=name&find=a")
    assert "?sort=waiting&show=waiting&find=a" in kept
    assert (
        "?show=closed&sort=name&find=a" not in kept
    )  # none is there: it is not offered
    assert "?show=&sort=name&find=a" in kept


def test_a_find_says_how_many_of_all_it_has_found(queues, web):
    a, _ = queues
    page = web.get(f"/q/a?find={a.alone}", Accept=BROWSER).text
    assert "1 of 2 found" in " ".join(page.split())
