"""The broker's pages, as an operator uses them."""

from __future__ import annotations

import pytest
from harness import chromium
from harness.broker import Client
from harness.cli import rq
from harness.ports import free_port

from rq.rpc.broker.addresses import address_of

EVIL = "<img src=x onerror=alert(1)>"


@pytest.mark.slow
def test_a_queue_is_watched_and_paused_and_a_job_is_deleted(stage):
    port, driver = free_port(), stage.driver
    stage.open("/broker")
    chromium.shows(driver, "rq broker enable", "#queues")
    done = rq("broker", "enable", "--port", str(port), root=stage.daemon.root.path)
    assert done.returncode == 0, done.stderr
    chromium.shows(driver, f"redis-cli -p {port} ADDJOB mail hello 0", "#queues")
    client = Client(port)
    job_id = client.ask("ADDJOB", EVIL, EVIL, 0)
    chromium.shows(driver, EVIL, "#queue-rows")
    chromium.click(driver, "#queue-rows a")
    chromium.shows(driver, EVIL, "#rows-disque")
    chromium.confirm(driver, "#queue-actions button[data-key=p]")
    chromium.shows(driver, "paused", "#badge")
    assert client.ask("PAUSE", EVIL, "state") == "all"
    chromium.click(driver, "#queue-actions button.primary")
    chromium.shows(driver, "Pause input", "#queue-actions")
    chromium.click(driver, "#rows-disque a")
    chromium.shows(driver, "It waits in its queue", "#story")
    client.ask("GETJOB", "FROM", EVIL)
    chromium.shows(driver, "It was handed out", "#story")
    chromium.confirm(driver, "#job-actions button.danger")
    chromium.shows(driver, "None waits", "#dialects")
    assert client.ask("SHOW", job_id) is None
    client.close()
    stage.clean()


@pytest.mark.slow
def test_axe_finds_nothing_serious_on_its_pages(stage, axe):
    port, driver = free_port(), stage.driver
    done = rq("broker", "enable", "--port", str(port), root=stage.daemon.root.path)
    assert done.returncode == 0, done.stderr
    client = Client(port)
    job_id = client.ask("ADDJOB", "n" * 300, "x" * 3000, 0)
    client.ask("PAUSE", "n" * 300, "in")
    client.ask("RQ.PUSH", "orders", *["order"] * 60)
    client.ask("RQ.POP", "orders")
    job = f"/broker/job/{address_of(job_id.encode())}"
    queue = f"/broker/q/{'n' * 300}"
    for path in ("/broker", queue, "/broker/q/orders", "/broker/q/new", job):
        stage.open(path)
        assert chromium.unfit_for_readers(driver, axe) == {}, path
    client.close()
    stage.clean()
