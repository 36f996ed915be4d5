"""What leaves a door open is said by `rq status` and by the page of the system."""

import json

import pytest
from harness import web_server
from harness.cli import rq

from rq.access import warnings
from rq.config import passwords
from rq.config.settings import RootConfig

pytestmark = pytest.mark.process

AUTH = {"users": {"ada": passwords.make("sesame")}}
TLS = {"cert": "/a", "key": "/b"}
READABLE = "can read passwords and tokens"


@pytest.mark.parametrize(
    ("addr", "auth", "tls", "warned"),
    [
        ("0.0.0.0", AUTH, {}, True),
        ("::", AUTH, {}, True),
        ("192.0.2.7", AUTH, {}, True),
        ("rq.example", AUTH, {}, True),
        ("0.0.0.0", AUTH, TLS, False),
        ("127.0.0.1", AUTH, {}, False),
        ("::1", AUTH, {}, False),
        ("localhost", AUTH, {}, False),
        ("0.0.0.0", None, {}, False),
    ],
)
def test_passwords_over_plain_http_beyond_loopback_are_warned_of(
    addr, auth, tls, warned
):
    config = RootConfig(addr=addr, basic_auth=auth, tls=tls, open_without_auth=not auth)
    told = " ".join(warnings.of_config(config))
    assert (READABLE in told) is warned


@pytest.mark.slow
def test_status_and_the_page_of_the_system_say_it(tmp_path):
    settings = {"addr": "0.0.0.0", "basic_auth": AUTH}
    with web_server.web_alone(tmp_path, **settings) as web:
        login = {"Authorization": "Basic YWRhOnNlc2FtZQ=="}
        assert READABLE in web.page("/system", **login)
        told = rq("status", "--json", root=tmp_path).stdout
        assert READABLE in " ".join(json.loads(told)["warnings"])
        assert READABLE in rq("status", root=tmp_path).stdout
