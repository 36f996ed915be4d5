"""A connection goes to the address that was judged, and no own address is a public one."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
from harness.canned_service import http, service
from harness.checkout import CHECKOUT

from rq.outbound import addresses, connection
from rq.outbound.connection import NotAllowed
from rq.outbound.line import Line
from rq.outbound.peers import Peer, origin

pytestmark = pytest.mark.process

OWN = """
import subprocess
from harness.waiting import wait_until
from rq.outbound import addresses

def look():
    for text in ("8.8.4.4", "2606:4700::1111", "::ffff:8.8.4.4"):
        try:
            addresses.find(text, 80, addresses.Allowed())
            print("public")
        except addresses.Internal:
            print("internal")

look()
for words in ("link set lo up", "addr add 8.8.4.4/32 dev lo",
              "addr add 2606:4700::1111/128 dev lo"):
    subprocess.run(["ip", *words.split()], check=True)

# The kernel makes an IPv6 address usable in a worker of its own, after `ip` has ended.
local = ["ip", "-6", "route", "show", "table", "local", "2606:4700::1111"]
wait_until(lambda: subprocess.check_output(local), 60)
look()
"""


def test_an_address_of_this_machine_is_internal_however_public_it_looks():
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare or ip -> apt-get install util-linux iproute2")
    words = ["unshare", "--net", sys.executable, "-c", OWN]
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "test")])
    ran = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["public"] * 3 + ["internal"] * 3


def one_after_the_other(monkeypatch, *answers):
    """Let each look-up of a name give the next of `answers`; return those that were."""
    looked = []

    def look_up(host, port, **_):
        looked.append(host)
        answer = answers[min(len(looked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return looked


def test_a_name_is_looked_up_once_and_the_address_that_was_judged_is_asked(monkeypatch):
    allow = addresses.allowed(["127.0.0.1"])
    with service(http("200 OK", [])) as (port, heard):
        looked = one_after_the_other(monkeypatch, "127.0.0.1", "10.255.255.1")
        line = Line(origin(f"http://rebind.example:{port}"), Peer(allow=allow))
        with line.within(30):
            assert line.request("GET", "/", None, {}).status == 200
        line.close()
    assert len(heard) == 1
    assert looked == ["rebind.example"]


def test_a_connection_that_has_closed_is_judged_anew(monkeypatch):
    with service(http("200 OK", [])) as (port, heard):
        one_after_the_other(monkeypatch, "127.0.0.1", "127.0.0.2")
        allow = addresses.allowed(["127.0.0.1"])
        line = Line(origin(f"http://rebind.example:{port}"), Peer(allow=allow))
        for _ in range(2):
            line.close()
            if heard:
                with pytest.raises(NotAllowed, match=r"127\.0\.0\.2, an internal"):
                    line.request("GET", "/", None, {})
            else:
                line.request("GET", "/", None, {})
        line.close()
    assert len(heard) == 1


def test_an_address_that_does_not_answer_leaves_time_for_the_next():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        places = [(socket.AF_INET, (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]
        with connection.connect(places, 5.0) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)
            assert sock.gettimeout() == 5.0
