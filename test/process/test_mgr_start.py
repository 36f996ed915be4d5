"""`rq-mgr start`: when it returns the page listens, or it says why not."""

import socket

import pytest
from harness.cli import rq, run
from harness.ports import free_port

from rq.layout import Root

pytestmark = pytest.mark.process


@pytest.fixture
def installed(tmp_path):
    """A root that is set up, and its port; what runs there is stopped at the end."""
    port = free_port()
    done = run("rq.cli.install", "--port", port, root=tmp_path)
    assert done.returncode == 0, done.stderr
    for link in Root(tmp_path).scandir.iterdir():
        link.unlink()
    try:
        yield tmp_path, port
    finally:
        ended = rq("down", root=tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["start", "restart"])
def test_the_page_listens_when_the_start_returns(installed, verb):
    root, port = installed
    done = run("rq.cli.mgr", verb, root=root)
    assert done.returncode == 0, done.stderr
    socket.create_connection(("127.0.0.1", port), 20).close()
    again = run("rq.cli.mgr", "start", root=root)
    assert again.returncode == 0
    assert "already running" in again.stdout


@pytest.mark.slow
def test_a_page_that_cannot_listen_is_told_and_the_queues_run(installed):
    root, port = installed
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        done = run("rq.cli.mgr", "start", root=root)
    assert done.returncode == 1
    assert "rq-mgr: started with pid" in done.stdout
    (said,) = done.stderr.splitlines()
    assert said.startswith("rq-mgr: the web does not answer: ")
    assert str(port) in said
    assert run("rq.cli.mgr", "status", root=root).returncode == 0
