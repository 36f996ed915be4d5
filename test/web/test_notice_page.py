"""A queue's page shows whom it tells and what it told last; a test is a button away."""

import json

import pytest
from harness.ports import free_port
from harness.post import Post, notice_queue
from harness.queues import kept, running_queue
from harness.waiting import wait_until
from harness.web_server import Client, start_web, write_config

from rq import cli

pytestmark = pytest.mark.process

OPS = "ops@example.org"
HOOK = "https://me:secret@hooks.example/<b>x"


@pytest.fixture
def post(tmp_path):
    return Post(tmp_path)


@pytest.fixture
def t(tmp_path, post):
    settings = {"on_err": [OPS, HOOK], "on_slow": {"mail": OPS, "seconds": 300}}
    with (
        kept(notice_queue(tmp_path)),
        running_queue(tmp_path, name="t", **settings) as queue,
    ):
        yield queue


@pytest.fixture
def web(t):
    port = free_port()
    write_config(t.root.path, port, sendmail=str(t.root.path / "sendmail"))
    process, said = start_web(t.root.path)
    try:
        assert said == "\n", said
        yield Client(port)
    finally:
        process.terminate()
        process.wait(60)


def test_the_page_says_whom_it_tells_and_what_it_told(t, web, post):
    t.run(param1="echo err it broke >&3")
    wait_until(post.raw)
    shown = web.page("/q/t")
    assert OPS in shown
    assert "https://hooks.example/(hidden)" in shown
    assert "secret@" not in shown.partition('id="owed"')[0]
    notices = web.get("/q/t/queue.json").json["notices"]
    assert {row["matter"] for row in notices["tells"]} == {"err", "slow"}
    assert {row["param3"] for row in notices["last"]} == {"err"}
    assert "Notices" not in web.page("/q/notice")


def test_a_test_notice_is_a_button_away(t, web, post):
    answer = web.post("/q/t/notices", {"_method": "test", "back": "/q/t"})
    assert answer.status == 303
    wait_until(post.raw)
    assert post.subjects() == ["[RQ 127.0.0.1] t: a test notice"]
    told = web.get("/api/v1/queues/t/notices").json
    assert [row["seconds"] for row in told["tells"]] == [None, 300.0]
    assert OPS in json.dumps(web.ask("POST", "/api/v1/queues/t/notices/test").json)
    refused = web.post("/q/notice/notices", {"_method": "test", "x_format": "json"})
    assert "tells nobody" in refused.json[1]


def test_the_command_line_lists_and_tests(t, post, capsys):
    root = ["--root", str(t.root.path), "notice"]
    assert cli.main([*root, "test", "t"]) == 0
    assert f"on its way to mail:{OPS}" in capsys.readouterr().out
    wait_until(post.raw)
    assert cli.main([*root, "ls", "t"]) == 0
    shown = capsys.readouterr().out
    assert "me:(hidden)@" in shown
    assert "its config" in shown
    assert "test" in shown
    assert cli.main([*root, "test", "notice"]) == 4
    assert "tells nobody of anything" in capsys.readouterr().err
