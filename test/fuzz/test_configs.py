"""Config files as an editor, a full disk or a joker leaves them: read, or BadConfig."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import orjson
import pytest
from harness.hostile_values import as_json, json_value, mangled, near, odd_text
from hypothesis import given
from hypothesis import strategies as st

from rq import config
from rq.builtin.router import rules
from rq.builtin.webhook import settings, signing
from rq.config.files import make_root
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.outbound import peers
from rq.timers.timer import parse, refusal

PATH = Path("config.json")
ROOT = {
    "env": "x", "host": "h", "port": 3333, "addr": "127.0.0.1", "relative_root": "/",
    "allow_new_queue": True, "basic_auth": {"a": "b"}, "allowed_ips": ["10.0.0.1"],
    "open_without_auth": False, "web": True, "web_workers": 1, "worker_env": {"A": "b"},
    "grace": 1.5, "min_free_bytes": 1, "min_free_inodes": 1, "tmpdir": "/tmp",
}  # fmt: skip
QUEUE = {
    "name": "q", "script": "/bin/true", "num_workers": 1, "exec_prefix": "", "nice": 0,
    "env_vars": {"A": "b"}, "coalesce_params": [1], "blocking_params": [2],
    "clone": "copy", "leave_children": True, "worker": "persistent",
    "worker_messages": 5, "worker_seconds": 5.0, "worker_dir": False,
    "retention": {"done": {"days": 1, "count": 5, "bytes": 7}}, "coalesce": "yes",
    "coalesce_param1": "1",
}  # fmt: skip
RULES = {
    "rules": [
        {"name": "a", "dest": "^x", "action": "relay", "route": ["h", ["i", "j:80"]]},
        {"name": "b", "param1": "y", "action": "balance", "route": ["h"], "delay": 5},
        {"name": "default", "action": "err", "log": True},
    ]
}
TIMER = {"period": 60, "msg": {"dest": "q", "param1": "x", "param2": 1}}
SECRET = signing.secret_of(bytes(32))
HOOKS = {
    "ca": "/x",
    "allow": ["10.0.0.0/8", "h"],
    "urls": {"http://h/a": {"secrets": [SECRET], "body": "form", "timeout": 5}},
}
PEERS = {
    "ca": "/x",
    "allow": ["h:1", "10.0.0.0/8"],
    "peers": {
        "http://h:1": {"user": "u", "password": "p", "insecure": True},
        "https://h": {"token": "rq_1", "timeout": 1},
    },
}


def files(good):
    """Give files that are nearly `good`, and others."""
    return st.one_of(
        near(good).map(as_json),
        mangled(as_json(good)),
        json_value.map(as_json),
        st.binary(max_size=40),
        st.sampled_from(
            [b"[" * 10**5, b'{"a":' * 10**5, b'{"a":' + b"9" * 9000 + b"}"]
        ),
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    found = Root(tmp_path_factory.mktemp("root"))
    make_root(found)
    return found


def put(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@given(data=files(ROOT))
def test_any_main_config_is_read_or_refused(root, data):
    put(root.config, data)
    with contextlib.suppress(BadConfig):
        found = config.read_root(root)
        assert 1 <= found.port <= 65535
        usable(found)


@given(data=files(QUEUE))
def test_any_config_of_a_queue_is_read_or_refused(root, data):
    queue = root.queue("q")
    queue.path.mkdir(exist_ok=True)
    put(queue.config, data)
    with contextlib.suppress(BadConfig):
        found = config.read_queue(queue)
        assert found.argv_prefix is not None
        usable(found)
        again = config.queue_config(found.to_json(), PATH)
        assert again == found


def usable(found):
    """What was read can be shown, given to the kernel, and written again."""
    shown = {one.name: getattr(found, one.name) for one in dataclasses.fields(found)}
    assert orjson.loads(orjson.dumps(shown))


@given(data=files(RULES), message=near({"src": "x", "dest": "x", "param1": "y"}))
def test_any_routing_rules_are_read_or_refused(root, data, message):
    put(root.router, data)
    with contextlib.suppress(BadConfig):
        found = rules.parse(config.read_json(root.router))
        assert rules.parse(found.to_json()).to_json() == found.to_json()
        with contextlib.suppress(TypeError):
            message = orjson.loads(orjson.dumps(message))
            rule = found.first(message)
            with contextlib.suppress(BadInput):
                dest = str(message.get("dest", ""))
                assert rules.destinations(rule, dest, lambda many: many[0]) is not None


@given(data=files(TIMER), name=odd_text)
def test_any_timer_is_read_and_can_be_sent_or_refused(root, data, name):
    path = put(root.timers / "t.json", data)
    with contextlib.suppress(BadConfig):
        timer = parse(path)
        assert timer.queue
        assert timer.key(1.5).isprintable()
        assert orjson.dumps({"dest": timer.dest, **timer.fields})
    assert isinstance(refusal(name), str)


urls = st.one_of(
    st.sampled_from(["http://h/a/b", "http://h:80/", "https://[::1]/x", "http://["]),
    odd_text.map(lambda text: f"http://{text}"),
)


@given(data=files(HOOKS), url=urls)
def test_any_settings_of_webhooks_are_read_or_refused(root, data, url):
    put(root.webhooks, data)
    with contextlib.suppress(BadConfig):
        found = settings.read(root, url)
        assert 0 < found.timeout <= 120
        assert found.ca is None or isinstance(found.ca, str)
        assert signing.headers("i", 1, b"", found.secrets)


@given(data=files(PEERS), url=urls)
def test_any_settings_of_peers_are_read_or_refused(root, data, url):
    put(root.peers, data)
    with contextlib.suppress(BadInput, BadConfig):
        to = peers.target(f"{url}/q/x")
        assert to.peer.startswith(("http://", "https://"))
        found = peers.read(root, to)
        assert isinstance(found.login, dict)
        for one in (found.user, found.password, found.ca, found.token):
            assert one is None or isinstance(one, str)
