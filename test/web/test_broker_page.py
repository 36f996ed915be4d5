"""/broker: what programs pull from, and who is connected."""

import contextlib
import html
import json
import shutil

import pytest
from harness import forks
from harness.broker import Client
from harness.ports import free_port
from harness.starting import environment
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

from rq.layout import Root
from rq.rpc.broker.addresses import address_of, name_at

pytestmark = pytest.mark.process
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def lasting(root):
    with web_alone(root) as web:
        yield web


@pytest.fixture
def web(lasting, root):
    """A web whose root has no broker yet."""
    yield lasting
    Root(root).broker_config.unlink(missing_ok=True)
    shutil.rmtree(Root(root).broker, ignore_errors=True)


@contextlib.contextmanager
def broker_of(root, **settings):
    """Run the broker of a root, without a supervisor; give a client."""
    port = free_port()
    Root(root).broker_config.write_text(
        json.dumps({"enabled": True, "port": port, **settings})
    )
    process, _ = forks.start("broker", ["--root", str(root)], environment({}))
    try:
        client = wait_until(lambda: Client(port))
        yield client
        client.close()
    finally:
        process.kill()
        process.wait(20)


def test_it_says_how_to_begin_and_nobody_is_led_there_before(web, root):
    page = html.unescape(web.get("/broker", Accept=BROWSER).text)
    assert "rq broker enable" in page
    assert 'href="/broker"' not in web.get("/system", Accept=BROWSER).text
    assert web.get("/broker.json").json["enabled"] is False


def test_it_shows_the_nodes_that_it_meets(web, root):
    with broker_of(root, bus_port=free_port()) as client:
        assert "Nodes</h2>" not in web.get("/broker", Accept=BROWSER).text
        nobody = free_port()
        client.ask("CLUSTER", "MEET", "127.0.0.1", nobody, nobody)
        page = web.get("/broker", Accept=BROWSER).text
        assert "Nodes</h2>" in page
        assert f"127.0.0.1:{nobody}" in page
        assert "not met yet" in page
        mine, other = web.get("/broker.json").json["nodes"]
        assert mine["flags"] == ["myself"]
        assert (other["flags"], other["linked"]) == (["handshake"], False)


def test_it_shows_queues_of_all_dialects_and_clients(web, root):
    with broker_of(root) as client:
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


def test_a_broker_that_does_not_answer_is_told(web, root):
    with broker_of(root):
        pass
    answer = web.get("/broker", Accept=BROWSER)
    assert answer.status == 200
    assert "the broker does not answer" in html.unescape(answer.text)
    Root(root).broker_config.write_text("{")
    facts = web.get("/broker.json").json
    assert "broker.json" in facts["trouble"]


HOSTILE = [
    b"a/b",
    b"..",
    b"",
    b"a\xff\x00",
    EVIL.encode(),
    b"x.json",
    b"%2f",
    b"~",
    b"rq-a:",
    b" \n",
]


def test_a_queue_of_any_name_has_a_page_with_its_jobs(web, root):
    with broker_of(root) as client:
        for name in HOSTILE:
            client.ask("ADDJOB", name, b"job of " + name, 0)
        rows = web.get("/broker.json").json["queues"]
        assert {name_at(row["address"]) for row in rows} == set(HOSTILE)
        assert ">(blanks)</a>" in web.page("/broker")
        for name in HOSTILE:
            path = f"/broker/q/{address_of(name)}"
            [job] = web.get(f"{path}.json").json["jobs"]["disque"]
            assert job["body"] == (b"job of " + name).decode(errors="backslashreplace")
            page = web.get(path, Accept=BROWSER)
            assert page.status == 200
            assert EVIL not in page.text
    assert web.get("/broker/q/a~zz").status == 404


def test_a_queue_shows_what_waits_in_each_dialect_and_how_much_moves(web, root):
    with broker_of(root) as client:
        client.ask("ADDJOB", "mail", "x" * 3000, 0, "DELAY", 60)
        client.ask("ADDJOB", "mail", "one", 0)
        client.ask("ADDJOB", "mail", "two", 0)
        client.ask("GETJOB", "FROM", "mail")
        client.ask("RQ.PUSH", "mail", "three", "four")
        client.ask("RQ.POP", "mail")
        client.ask("QADD", "mail", 60, "five")
        facts = web.get("/broker/q/mail.json").json
        told = {
            row["dialect"]: (row["waits"], row["handed_out"]) for row in facts["rows"]
        }
        assert told == {"disque": (1, 2), "redisrq": (1, 1), "bananaq": (1, 0)}
        moved = {row["dialect"]: (row["came"], row["went"]) for row in facts["rows"]}
        assert moved == {"disque": (3, 1), "redisrq": (2, 1), "bananaq": (1, 0)}
        assert facts["rows"][0]["in_rate"] > 0
        assert sum(facts["minutes"][0]["came"]) in (1, 2, 3)
        client.ask("ADDJOB", "uneven", "one", 0)
        client.ask("RQ.PUSH", "uneven", "one", "two")
        client.ask("QADD", "uneven", 60, "one")
        uneven = web.get("/broker/q/uneven.json").json
        for row, minutes in zip(uneven["rows"], uneven["minutes"], strict=True):
            assert minutes["waits"][-1] == row["waits"], row["dialect"]
            assert sum(minutes["came"]) in (0, row["came"]), row["dialect"]
        bodies = [job["body"] for jobs in facts["jobs"].values() for job in jobs]
        assert bodies == ["two", "four", "three", "five"]
        page = web.page("/broker/q/mail")
        assert "Handed out per minute" in page
        assert "and 1 more" not in page


def test_an_empty_queue_says_what_to_do_next(web, root):
    with broker_of(root):
        page = web.page("/broker/q/nothing")
        assert "ADDJOB nothing hello 0" in page
    assert "the broker does not answer" in web.page("/broker/q/nothing")
    Root(root).broker_config.write_text("{}")
    assert "rq broker enable" in web.page("/broker/q/nothing")


def posted(web, path, verb):
    """Do what the question of a verb would post; return the answer for programs."""
    question = web.get(f"{path}/confirm/{verb}", Accept="application/json").json
    answer = web.post(question["post"], {**question["fields"], "x_format": "json"})
    assert answer.status == 200, answer
    return answer.json


def test_a_queue_is_paused_and_goes_on(web, root):
    with broker_of(root) as client:
        assert posted(web, "/broker/q/mail", "pause_in") == ["ok", "in"]
        assert client.ask("ADDJOB", "mail", "x", 0).startswith("PAUSED")
        assert "takes no jobs" in web.page("/broker/q/mail")
        fields = {"_method": "resume", "x_format": "json"}
        assert web.post("/broker/q/mail", fields).json == ["ok", "none"]
        assert posted(web, "/broker/q/mail", "pause") == ["ok", "all"]
        assert client.ask("PAUSE", "mail", "state") == "all"
        assert web.post("/broker/q/mail", {"_method": "burn"}).status == 400


def test_the_story_of_a_job_is_told_and_changed(web, root):
    with broker_of(root) as client:
        job_id = client.ask("ADDJOB", b"a/b", "<b>body", 0, "RETRY", 100)
        path = f"/broker/job/{address_of(job_id.encode())}"
        facts = web.get(f"{path}.json").json["job"]
        assert (facts["state"], facts["body"], facts["deliveries"]) == (
            "queued",
            "<b>body",
            0,
        )
        client.ask("GETJOB", "FROM", b"a/b")
        assert "It was handed out." in web.page(path)
        client.ask("NACK", job_id)
        facts = web.get(f"{path}.json").json["job"]
        assert (facts["deliveries"], facts["nacks"]) == (1, 1)
        assert posted(web, path, "dequeue") == ["ok", 1]
        assert client.ask("QLEN", b"a/b") == 0
        assert posted(web, path, "dequeue") == ["ok", 0]
        assert posted(web, path, "enqueue") == ["ok", 1]
        assert client.ask("QLEN", b"a/b") == 1
        assert posted(web, path, "delete") == ["ok", 1]
        assert client.ask("SHOW", job_id) is None
        assert "has no such job" in web.page(path)
        done = web.post(path, {"_method": "ack", "back": "/broker"})
        assert done.status == 303
        delayed = client.ask("ADDJOB", "later", "x", 0, "DELAY", 60)
        assert "It is delayed" in web.page(
            f"/broker/job/{address_of(delayed.encode())}"
        )
        once = client.ask("ADDJOB", "once", "x", 0, "RETRY", 0)
        client.ask("GETJOB", "FROM", "once")
        assert "at most once" in web.page(f"/broker/job/{address_of(once.encode())}")
        huge = client.ask("ADDJOB", "huge", "y" * 200_000, 0)
        page = web.page(f"/broker/job/{address_of(huge.encode())}")
        assert "its beginning" in page
        huge = client.ask("ADDJOB", "huger", "y" * 600_000, 0)
        page = web.page(f"/broker/job/{address_of(huge.encode())}")
        assert "It is large" in page
        assert len(page) < 100_000
        page = web.page("/broker/q/huger")
        assert "585.9 KiB" in page
        assert "(in a file of its own)" in page
        assert len(page) < 100_000


def test_what_is_done_while_the_broker_is_down_is_refused(web, root):
    with broker_of(root):
        pass
    answer = web.post("/broker/q/mail", {"_method": "pause", "x_format": "json"})
    assert answer.json[0] == "fail"
    assert "does not answer" in answer.json[1]


def values_in(metrics):
    """Return the values of a text of metrics, by name and labels."""
    lines = [line for line in metrics.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines)}


def test_metrics_hold_a_bounded_number_of_queues(web, root):
    assert "rq_broker_up" not in web.get("/metrics").text
    with broker_of(root) as client:
        client.ask("ADDJOB", b'a"\\\n\xff', "x", 0)
        client.ask("ADDJOB", "alike\\xff", "x", 0)
        client.ask("ADDJOB", b"alike\xff", "x", 0)
        client.ask("RQ.PUSH", "n" * 1000, "x")
        client.ask("ADDJOB", "mail", "x", 0)
        client.ask("ADDJOB", "mail", "x", 0, "DELAY", 900)
        client.ask("GETJOB", "FROM", "mail")
        for number in range(300):
            client.ask("RQ.PUSH", f"list-{number}", "x")
        answer = web.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        values = values_in(answer.text)
        samples = [x for x in answer.text.splitlines() if not x.startswith("#")]
        assert len(samples) == len(values)
        mail = '{dialect="disque",queue="mail"}'
        assert values[f"rq_broker_queue_out{mail}"] == 2
        assert values["rq_broker_up"] == values["rq_broker_accepts"] == 1
        assert values["rq_broker_in_total"] == 306
        assert values["rq_broker_out_total"] == 1
        assert values["rq_broker_queues"] == 305
        waiting = [
            name for name in values if name.startswith("rq_broker_queue_waiting")
        ]
        assert len(waiting) == 200
        assert max(map(len, answer.text.splitlines())) < 400
    assert values_in(web.get("/metrics").text)["rq_broker_up"] == 0
