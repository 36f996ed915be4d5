"""/broker: what programs pull from, and who is connected."""

import contextlib
import html
import json
import subprocess
import sys

import pytest
from harness.broker import Client
from harness.ports import free_port
from harness.starting import environment
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

pytestmark = pytest.mark.process
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def web(tmp_path):
    with web_alone(tmp_path) as web:
        yield web


@contextlib.contextmanager
def broker_of(root):
    """Run the broker of a root, without a supervisor; give a client."""
    port = free_port()
    config = root / "config" / "broker.json"
    config.write_text(json.dumps({"enabled": True, "port": port}))
    process = subprocess.Popen(
        [sys.executable, "-m", "rq.broker", "--root", str(root)], env=environment({})
    )
    try:
        client = wait_until(lambda: Client(port))
        yield client
        client.close()
    finally:
        process.kill()
        process.wait(20)


def test_it_says_how_to_begin_and_nobody_is_led_there_before(web, tmp_path):
    page = html.unescape(web.get("/broker", Accept=BROWSER).text)
    assert "rq broker enable" in page
    assert 'href="/broker"' not in web.get("/system", Accept=BROWSER).text
    assert web.get("/broker.json").json["enabled"] is False


def test_it_shows_queues_of_all_dialects_and_clients(web, tmp_path):
    with broker_of(tmp_path) as client:
        client.ask("ADDJOB", EVIL, "x", 0)
        client.ask("RQ.PUSH", "orders", "x")
        client.ask("QADD", "events", 60, "x")
        client.ask("CLIENT", "SETNAME", "me")
        facts = web.get("/broker.json").json
        assert [row["name"] for row in facts["queues"]] == [EVIL, "events", "orders"]
        assert [row["name"] for row in facts["clients"]] == ["me"]
        page = web.get("/broker", Accept=BROWSER).text
        assert EVIL not in page
        assert EVIL in html.unescape(page)
        assert 'href="/broker"' in page


def test_a_broker_that_does_not_answer_is_told(web, tmp_path):
    with broker_of(tmp_path):
        pass
    answer = web.get("/broker", Accept=BROWSER)
    assert answer.status == 200
    assert "the broker does not answer" in html.unescape(answer.text)
    (tmp_path / "config/broker.json").write_text("{")
    facts = web.get("/broker.json").json
    assert "broker.json" in facts["trouble"]
