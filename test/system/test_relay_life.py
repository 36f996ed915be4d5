"""Every way into the relay, through whole daemons: the command line, dup, forward, timers."""

import json

import pytest
from harness import broker
from harness.checkout import CHECKOUT
from harness.cli import rq
from harness.ports import free_port
from harness.waiting import wait_until
from harness.web_server import served

from rq import cli
from rq.outbound import permits

pytestmark = pytest.mark.system

DUP = 'echo "dup 0-X-$RQ_PARAM1" >&3; read -r word id <&4; echo "done $word" >&3'


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    path = tmp_path_factory.mktemp("hosts")
    with served(path / "here") as here, served(path / "there") as there:
        here.daemon.link("relay", CHECKOUT / "rq/bundled/relay")
        here.daemon.until_up("relay", 60)
        for one in (here, there):
            permits.allow(one.daemon.root, ["127.0.0.1"])
        there.queue("cat ../attach/* 2>/dev/null; echo done >&3", "sink")
        yield here, there, f"http://127.0.0.1:{there.port}/q/sink"


def got(there, param2):
    """Return the one message with this param2, once it has ended."""

    def found():
        asked = {"state": "done", "limit": 1000}
        all_ = there.daemon.ask_queue("sink", "list", asked)[1]
        return [one for one in all_ if one.get("param2") == param2]

    [one] = wait_until(found, 60)
    return there.get(f"/q/sink/{one['msg_id']}.json").json


@pytest.mark.slow
def test_a_message_with_an_attachment_is_sent_from_the_command_line(
    hosts, tmp_path, capfd
):
    here, there, url = hosts
    (tmp_path / "parcel.txt").write_text("what travels")
    words = [
        "send",
        url,
        "-p2",
        "by hand",
        "-a",
        str(tmp_path / "parcel.txt"),
        "--wait",
    ]
    assert cli.main(["--root", str(here.daemon.root.path), *words]) == 0
    assert "relayed" in capfd.readouterr().err
    one = got(there, "by hand")
    assert set(one["attachments"]) == {"parcel.txt"}
    assert one["orig_msg_id"].startswith(f"http://127.0.0.1:{here.port}/q/relay/")


def test_the_ancestors_verb_needs_to_be_allowed(hosts, capfd):
    here, there, url = hosts
    words = ["--root", str(here.daemon.root.path), "sendmesg", "--dest", url]
    assert cli.main([*words, "--param2", "old verb"]) == 1
    assert "--relay-ok" in capfd.readouterr().err
    assert cli.main([*words, "--param2", "old verb", "--relay-ok"]) == 0
    got(there, "old verb")


@pytest.mark.parametrize("way", ["dup", "forward"])
def test_a_script_sends_its_message_on(hosts, way):
    here, there, url = hosts
    script = {"dup": DUP, "forward": 'echo "forward $RQ_PARAM1" >&3'}[way]
    queue = here.queue(script)
    here.send(queue, param1=url, param2=way, hops=2)
    one = got(there, way)
    assert (one["hops"], one["dest"]) == (3, url)
    assert f"/q/{queue}/" in one["orig_msg_id"]


def test_what_is_relayed_is_fetched_by_a_client_of_the_broker(hosts):
    here, there, _ = hosts
    root, port = there.daemon.root, free_port()
    queue = there.queue("exit 1", pull={}, num_workers=0)
    enabled = rq("broker", "enable", "--port", str(port), root=root.path)
    assert enabled.returncode == 0, enabled.stderr
    client = wait_until(lambda: broker.Client(port))
    client.send("GETJOB", "TIMEOUT", 60_000, "FROM", f"rq:{queue}")
    words = ["send", f"http://127.0.0.1:{there.port}/q/{queue}", "-p1", "from afar"]
    assert cli.main(["--root", str(here.daemon.root.path), *words]) == 0
    client.socket.settimeout(90)
    [[_, job_id, body]] = client.answer()
    assert body == b"from afar"
    assert client.ask("ACKJOB", job_id) == 1
    client.close()
    assert len(there.daemon.ask_queue(queue, "list", {"state": "done"})[1]) == 1


def test_a_timer_fires_at_another_host(hosts):
    here, there, url = hosts
    timer = {"period": 86400, "msg": {"dest": url, "param2": "timer"}}
    (here.daemon.root.timers / "far.json").write_text(json.dumps(timer))
    got(there, "timer")


@pytest.mark.slow
def test_what_goes_round_in_a_loop_ends_in_err(hosts):
    here, there, _ = hosts
    there.daemon.link("relay", CHECKOUT / "rq/bundled/relay")
    there.daemon.until_up("relay", 60)
    home = f"http://127.0.0.1:{here.port}/q/ping"
    there.queue(f"echo forward {home} >&3", "pong")
    here.queue(f"echo forward http://127.0.0.1:{there.port}/q/pong >&3", "ping")
    here.send("ping", hops=20)

    def ended():
        every = [*errors(here), *errors(there)]
        return [one for one in every if "goes round in a loop" in one["status"]]

    assert len(wait_until(ended, 90)) == 1


def errors(served_root):
    asked = {"state": "err", "limit": 100}
    return served_root.daemon.ask_queue("relay", "list", asked)[1]


@pytest.mark.slow
def test_after_the_update_hosts_of_before_are_asked_as_ever(tmp_path, capfd):
    with served(tmp_path / "here") as here, served(tmp_path / "there") as there:
        root = here.daemon.root
        here.daemon.link("relay", CHECKOUT / "rq/bundled/relay")
        here.daemon.until_up("relay", 60)
        there.queue("echo done >&3", "sink")
        place = f"127.0.0.1:{there.port}"
        permits.allow(root, [place])
        here.send("relay", dest=f"http://{place}/q/sink", param2="before")
        got(there, "before")
        here.daemon.stop()
        for path in (root.peers, root.relay_hosts):  # as an old version left it
            path.unlink()
        here.daemon.start()
        for name in ("web", "relay"):
            here.daemon.until_up(name, 60)
        here.send("relay", dest=f"http://{place}/q/sink", param2="after")
        got(there, "after")
        assert f"host={place}" in (root.log / "queuemgr.log").read_text()
        shown = []
        for _ in range(2):
            capfd.readouterr()
            assert cli.main(["--root", str(root.path), "status"]) == 0
            shown.append(place in capfd.readouterr().out)
        assert shown == [True, False]
