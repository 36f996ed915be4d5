"""The guide's three brokers: each block is run on the host that it names."""

import contextlib
import json
import re

import pytest
from harness import guide
from harness.documents import GUIDE, examples
from harness.ports import free_port
from harness.registries import redis_cli

pytestmark = [pytest.mark.system, pytest.mark.long]

HOSTS = {"alpha": "10.0.0.1", "beta": "10.0.0.2", "gamma": "10.0.0.3"}
BUS_SHOWN = "17711"


class Host:
    """A root of this machine, which the page shows as a host."""

    def __init__(self, bash):
        self.bash = bash
        self.port, self.bus_port = free_port(), free_port()
        ports = {"port": self.port, "bus_port": self.bus_port}
        config = {**ports, "bus_addr": "127.0.0.1"}
        bash.root.broker_config.write_text(json.dumps(config))
        bash.broker_port = str(self.port)

    @property
    def secret(self):
        return self.bash.root.broker_secret


@pytest.fixture
def hosts(tmp_path):
    with contextlib.ExitStack() as stack:
        yield {
            name: Host(stack.enter_context(guide.shell(tmp_path / name)))
            for name in HOSTS
        }


def played_here(command, hosts):
    """Return a command of the page for this machine, where `ssh` goes nowhere."""
    first = hosts["alpha"]
    command = re.sub(r"ssh alpha cat \S+", f"cat {first.secret}", command)
    command = command.replace("join alpha", f"join 127.0.0.1:{first.bus_port}")
    for name, host in hosts.items():
        there = f"127.0.0.1:{host.port}"
        command = command.replace(f"{HOSTS[name]}:7711", there)
    return command


def as_shown(printed, host, hosts):
    printed = printed.replace(str(host.bus_port), BUS_SHOWN)
    for name, other in hosts.items():
        for port in (str(other.port), guide.BROKER_SHOWN if other is host else "none"):
            printed = printed.replace(f"127.0.0.1:{port} ", f"{HOSTS[name]}:7711 ")
            printed = printed.replace(f"127.0.0.1:{port})", f"{HOSTS[name]}:7711)")
    return printed


@pytest.mark.slow
def test_three_brokers_are_one_cluster_as_the_page_shows(hosts):
    redis_cli()
    blocks = [
        example
        for example in examples(GUIDE / "broker-cluster.md")
        if (example.language, example.use in HOSTS) == ("console", True)
    ]
    assert {example.use for example in blocks} == set(HOSTS)
    for example in blocks:
        host = hosts[example.use]
        for step in guide.steps(example.language, example.text):
            printed, status = host.bash.run(played_here(step.command, hosts))
            printed = as_shown(printed, host, hosts)
            assert step.fails or status == 0, f"{step.command}\n{printed}"
            assert guide.is_as_shown(step.shown, printed), (
                f"$ {step.command}\n{printed}\n--- the page shows:\n{step.shown}"
            )
