"""A root with a web, and a browser, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import chromium, showcase
from harness.ports import free_port
from harness.supervisor import Daemon, daemon_on


@dataclass(frozen=True)
class Stage:
    """What a test works with."""

    daemon: Daemon
    driver: Any
    port: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def open(self, path: str) -> None:
        """Go to a page and wait until its scripts work."""
        self.driver.get(self.url(path))
        chromium.until(self.driver, "!document.getElementById('theme').hidden")

    def queue(self, name: str, script: str, workers: int = 1) -> None:
        """Make a queue whose script has the text given."""
        directory = self.daemon.define(name, {"num_workers": workers, "nice": 0})
        (directory / "run").write_text(script)
        self.daemon.link(name, directory)
        self.daemon.until_up(name)

    def send(self, queue: str, param1: str = "", **fields: Any) -> str:
        return showcase.send(self.daemon, queue, param1, **fields)

    def state(self, queue: str, msg_id: str) -> str:
        return showcase.state(self.daemon, queue, msg_id)

    def clean(self) -> None:
        """Fail if the page did what its policy forbids, opened a dialog or broke."""
        assert chromium.violations(self.driver) == []


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    chromium.need()
    port = free_port()
    path = tmp_path_factory.mktemp("root")
    with daemon_on(path / "rq") as daemon, chromium.browser() as driver:
        showcase.configure(daemon, port)
        daemon.start()
        daemon.until_up("web")
        yield Stage(daemon, driver, port)


@pytest.fixture(scope="session")
def axe() -> str:
    return chromium.axe()
