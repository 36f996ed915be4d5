"""`localhost` means two addresses: the web takes both, or says which one it has not got."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import subprocess
import sys
from random import Random

import pytest
from harness.cli import rq
from harness.ports import free_port
from harness.processes import only_root
from harness.supervisor import daemon_on
from harness.web_server import Client, web_alone, write_config

from rq.broker.bus.bus import Bus
from rq.broker.cluster.gossip import Address
from rq.broker.cluster.members import Members
from rq.cli import ports
from rq.proc import listening

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not socket.has_dualstack_ipv6(), reason="this machine has no IPv6"
    ),
]

WITHOUT_SIX = """
import sys
from rq.proc import listening
bound = listening.listen("127.0.0.1", 3333, "the web")
print(len(bound.socks), repr(bound.held), listening.is_free("::1", 3333))
"""


class Deaf:
    """Hears nothing of members."""

    def came(self, node, message):
        pass

    def greeted(self, node):
        pass

    linked = linked_from = greeted


def six(port: int, **headers: str) -> tuple[int, str]:
    """Ask for the queues over ::1."""
    line = http.client.HTTPConnection("::1", port, timeout=60)
    try:
        line.request("GET", "/q.json", headers=headers)
        reply = line.getresponse()
        return reply.status, reply.read().decode()
    finally:
        line.close()


def held(port: int) -> socket.socket:
    """Return a server of another program on ::1."""
    return socket.create_server(("::1", port), family=socket.AF_INET6)


def test_the_web_answers_on_both_and_knows_by_the_kernel_who_asks(tmp_path):
    with web_alone(tmp_path, allowed_ips=["127.0.0.1"]) as web:
        with pytest.raises(OSError, match="in use"):
            held(web.port)
        assert six(web.port)[0] == web.get("/q.json").status == 200
        assert six(web.port, Host="[::1].evil.example")[0] == 421
        assert web.get("/q.json", Host="[::1].evil.example").status == 421
        assert six(web.port, Via="a proxy")[0] == 401


def test_connections_of_both_count_together(tmp_path):
    with web_alone(tmp_path, web_connections=8) as web:
        lines = []
        for host in ("127.0.0.1", "::1") * 4:
            lines.append(socket.create_connection((host, web.port)))
            lines[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            lines[-1].recv(100)
        first = lines[0]
        first.settimeout(60)
        while first.recv(1000):  # four of one user wait, and each more ends the longest
            pass
        for line in lines:
            line.close()


@pytest.mark.slow
def test_a_loopback_that_another_program_holds_is_said_wherever_one_looks(tmp_path):
    port = free_port()
    with held(port), daemon_on(tmp_path) as daemon:
        write_config(tmp_path, port, addr="localhost")
        daemon.start()
        daemon.until_up("web")
        said = f"web does not listen on [::1]:{port}, for another process does"
        assert Client(port).get("/q.json").status == 200
        for words in (("status",), ("doctor", "--quick"), ("up", "--no-samples")):
            done = rq(*words, root=tmp_path)
            assert said in done.stdout + done.stderr, (words, done)
        address = rq("open", root=tmp_path).stdout
        assert address.startswith(f"http://127.0.0.1:{port}/login?once=")


@pytest.mark.slow
def test_no_key_is_given_away_to_who_listens_in_the_place_of_the_web(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, daemon_on(tmp_path) as daemon:
        write_config(tmp_path, taken.getsockname()[1])
        daemon.start()
        done = rq("open", root=tmp_path)
        assert (done.returncode, done.stdout) == (4, "")
        assert "the web does not serve now" in done.stderr


def test_a_port_is_free_only_where_both_are():
    port = free_port()
    assert ports.is_free("127.0.0.1", port)
    with held(port):
        assert str(os.getpid()) in (ports.holder("127.0.0.1", port) or "")
        assert not ports.is_needed("127.0.0.1", port)
        bound = listening.listen("127.0.0.1", port, "a test")
        assert (len(bound.socks), bound.held) == (1, f"[::1]:{port}")
        bound.close()


def test_nodes_that_come_in_learn_of_who_took_the_port_before_it_listened():
    # It is bound at the start, and listens when the disk is read: a while in between.
    port = free_port()
    bound = listening.bind("127.0.0.1", port, "a test")
    node = Members("a" * 40, Random(1), Address("127.0.0.1", port, port))
    loop = asyncio.new_event_loop()
    bus = Bus(node, b"secret", loop, loop.time, Deaf())
    with held(port):
        assert bus.begin(bound) == f"[::1]:{port}"
    bus.close()
    loop.close()


@only_root
def test_a_machine_without_ipv6_is_no_trouble():
    off = "ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; "
    command = ["unshare", "-n", "sh", "-c", off + 'exec "$@"', "sh", sys.executable]
    done = subprocess.run(
        [*command, "-c", WITHOUT_SIX],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("1 '' True\n", "")


def test_all_that_is_no_host_is_refused(tmp_path):
    with web_alone(tmp_path) as web:
        for host in ("localhost", "localhost.:80", "[::1]:1", "127.0.0.1", "LocalHost"):
            assert web.get("/q.json", Host=host).status == 200, host
        wrong = ("[::1]x", "[::1", "::1]", "localhost:80:80", "a@localhost", "[::1]@a")
        for host in (*wrong, "localhost/", "evil.example#localhost", "", "[localhost]"):
            assert web.get("/q.json", Host=host).status in (400, 421), host
        other = {"Origin": "http://[::1].evil.example", "Host": "[::1].evil.example"}
        assert web.post("/q/x/run", {}, **other).status == 421
        assert web.post("/q/x/run", {}, Origin="null", Host="").status == 421
