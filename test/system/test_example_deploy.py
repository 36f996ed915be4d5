"""examples/deploy takes an archive to several hosts and tells what came of each."""

import io
import json
import tarfile

import pytest
from harness.checkout import CHECKOUT
from harness.waiting import wait_until
from harness.web_server import served

from rq import config
from rq.outbound import permits

pytestmark = pytest.mark.system

DEPLOY = CHECKOUT / "examples/deploy"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two RQs; both can install, the first can deploy."""
    path = tmp_path_factory.mktemp("hosts")
    with served(path / "here") as here, served(path / "there") as there:
        permits.allow(here.daemon.root, ["127.0.0.1"])
        for one in (here, there):
            sites(one).mkdir()
            env_vars = {"SITES": str(sites(one))}  # where it unpacks to
            define(one, "install", DEPLOY / "install", env_vars=env_vars)
        here.daemon.link("relay", CHECKOUT / "rq/bundled/relay")
        here.daemon.until_up("relay", 60)
        define(here, "deploy", DEPLOY)
        yield here, there


def sites(host):
    return host.daemon.root.path / "sites"


def define(host, name, example, **changes):
    """Link a queue of the example as it stands, but for some settings."""
    settings = config.read_json(example / "config.json")
    config.queue_config({"script": "run", **settings}, example)
    # Scripts that are as nice as they are by default starve on a busy machine.
    directory = host.daemon.define(name, {**settings, "nice": 0, **changes})
    (directory / "run").unlink()
    (directory / "run").symlink_to(example / "run")
    host.daemon.link(name, directory)
    host.daemon.until_up(name, 60)


def url(host, queue="install"):
    return f"http://127.0.0.1:{host.port}/q/{queue}"


def archive(text):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as packed:
        member = tarfile.TarInfo("index.html")
        member.size = len(text)
        packed.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


def deploy(here, urls, data, site="shop"):
    """Send an archive; return the message, once it has ended."""
    ask = here.daemon.ask_queue
    asked = {"dest": "deploy", "param1": " ".join(urls), "param2": site}
    msg_id = ask("deploy", "prep_message", asked)[1].rpartition("/")[2]
    path = here.daemon.root.path / "site.tar.gz"
    path.write_bytes(data)
    attached = {"msg_id": msg_id, "pathname": str(path)}
    assert ask("deploy", "attach_message", attached)[0] == "ok"
    assert ask("deploy", "commit_message", {"msg_id": msg_id})[0] == "ok"
    return ended(here, msg_id)


def ended(here, msg_id):
    wait_until(lambda: here.state("deploy", msg_id) in ("done", "err"), 60)
    return here.get(f"/q/deploy/{msg_id}.json").json


def kept(here, message):
    """Return what the example keeps of each host."""
    assert here.daemon.ask_queue("deploy", "check") == ["ok", {"problems": []}]
    path = here.daemon.root.path / message["path"] / "job/hosts.json"
    return json.loads(path.read_text())["hosts"]


def current(host, site="shop"):
    return (sites(host) / site / "current/index.html").read_text()


@pytest.mark.slow
def test_each_host_has_the_release_and_a_later_one_takes_its_place(hosts):
    here, there = hosts
    urls = [url(here), url(there)]
    for text in ("first", "second"):
        message = deploy(here, urls, archive(text))
        assert message["status"] == "done - 2 of 2", message
        assert [current(here), current(there)] == [text, text]
        told = kept(here, message)
        assert {one["ended"] for one in told.values()} == {"done"}
        assert told[url(there)]["there"].startswith(url(there))
    assert len(list((sites(there) / "shop/releases").iterdir())) == 2


@pytest.mark.slow
def test_a_host_that_fails_is_named_with_the_reason_and_is_the_only_one_tried_again(
    hosts,
):
    here, there = hosts
    broken, good = url(there, "install-later"), url(here)
    message = deploy(here, [broken, good], archive("third"), "blog")
    assert message["status"].startswith(f"err - 1 of 2 failed: {broken}: ")
    assert "no queue install-later" in message["status"]
    assert current(here, "blog") == "third"
    installed = here.daemon.messages("install")
    there.daemon.link("install-later", there.daemon.root.path / "definitions/install")
    there.daemon.until_up("install-later", 60)
    asked = {"msg_id": message["msg_id"]}
    assert here.daemon.ask_queue("deploy", "retry_message", asked)[0] == "ok"
    assert ended(here, message["msg_id"])["status"] == "done - 2 of 2"
    assert current(there, "blog") == "third"
    assert here.daemon.messages("install") == installed


def test_what_a_host_made_of_it_is_told_here(hosts):
    here, there = hosts
    message = deploy(here, [url(there)], b"no archive", "blog")
    assert f"1 of 1 failed: {url(there)}: err - " in message["status"]
    assert "cannot be unpacked" in message["status"]
    assert not list((sites(there) / "blog/releases").glob(".*"))


@pytest.mark.parametrize("site", ["", "../shop", "-x", "a b"])
def test_a_site_is_a_name(hosts, site):
    _, there = hosts
    msg_id = there.send("install", param2=site)
    wait_until(lambda: there.state("install", msg_id) == "err", 60)
    found = there.get(f"/q/install/{msg_id}.json").json
    assert "is no name of a site" in found["status"]


@pytest.mark.parametrize(("urls", "said"), [("", "names no queue"), ("x", "attach")])
def test_what_cannot_be_deployed_is_refused_at_once(hosts, urls, said):
    here, _ = hosts
    msg_id = here.send("deploy", param1=urls)
    assert said in ended(here, msg_id)["status"]
