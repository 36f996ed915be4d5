"""Hosts: network namespaces of this machine, each with a real RQ."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import clocks as wall_clocks
from faults.clocks import Clock
from harness import c_library
from harness.checkout import CHECKOUT
from harness.supervisor import Daemon
from harness.waiting import wait_until
from harness.web_server import write_config

from rq.outbound import permits

CLOCK = Path(wall_clocks.__file__).with_name("clock.c")
NET = Path(__file__).resolve().with_name("net.sh")
SINK = "#!/bin/sh\ncat ../attach/* >/dev/null 2>&1\necho done got it >&3\n"


class Host(Daemon):
    """An RQ in a namespace of its own."""

    def __init__(self, path: Path, net: Net, number: int) -> None:
        super().__init__(path)
        self._net = net
        self._number = number
        self.before = ["ip", "netns", "exec", self.space]
        self.address = f"10.77.0.{number}"
        write_config(
            path, 3333, host=self.address, addr="0.0.0.0", open_without_auth=True
        )
        permits.allow(self.root, ["10.77.0.0/24"])
        self.script.write_text(SINK)

    @property
    def space(self) -> str:
        """The name of its namespace."""
        return f"{self._net.tag}-{self._number}"

    def url(self, queue: str = "sink") -> str:
        return f"http://{self.address}:3333/q/{queue}"

    def open_up(self) -> None:
        """Start it, with its queues `relay` and `sink`."""
        self.start()
        self.until_up("web", 60)
        self.create("sink")
        self.link("relay", CHECKOUT / "rq/bundled/relay")
        self.until_up("relay", 60)

    def plug(self, word: str) -> None:
        self._net.say("link", str(self._number), word)

    def slow(self, kbit: int) -> None:
        """Let so much come to it in a second; 0: all."""
        self._net.say("slow", str(self._number), str(kbit))


class Net:
    """Some hosts on one switch."""

    def __init__(self) -> None:
        self.tag = f"rq{uuid.uuid4().hex[:6]}"
        self.hosts: list[Host] = []

    def say(self, word: str, *more: str) -> None:
        words = [str(NET), word, self.tag, *more]
        subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def connected(directory: Path, count: int) -> Iterator[Net]:
    """Give hosts that are connected, and none of whose RQs runs yet."""
    if shutil.which("ip") is None:
        pytest.skip("no ip -> apt-get install iproute2")
    made = Net()
    try:
        made.say("up", str(count))
    except subprocess.CalledProcessError as error:
        made.say("down")
        pytest.skip(f"no namespaces ({error.stderr!r:.80}) -> run it as root")
    try:
        made.hosts = [Host(directory / str(k), made, k) for k in range(1, count + 1)]
        yield made
    finally:
        for host in made.hosts:
            host.close()
        made.say("down")
    assert all(wait_until(lambda h=host: not h.processes()) for host in made.hosts)


@pytest.fixture
def cables(tmp_path, request):
    """Give hosts, three if a test does not ask for another number."""
    with connected(tmp_path, getattr(request, "param", 3)) as made:
        yield made


@pytest.fixture
def clocks(tmp_path):
    """Give what makes the wall clock of a host, by its name."""
    library = c_library.compiled(CLOCK, tmp_path)

    def make(name: str) -> Clock:
        return Clock(library, tmp_path / f"{name}.clock")

    return make


@pytest.fixture
def net(cables):
    """Give three hosts whose RQs run."""
    for host in cables.hosts:
        host.open_up()
    return cables
