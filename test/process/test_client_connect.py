"""Connecting to a process that is there, and behind with those who came before."""

import socket
import threading
import time

import pytest

from rq.errors import Unreachable
from rq.rpc import client

pytestmark = pytest.mark.process


@pytest.fixture
def crowded(tmp_path):
    """Give a listening socket whose backlog is full, and its path."""
    path = tmp_path / "queue.sock"
    with (
        client.listen(path, backlog=0) as listener,
        socket.socket(socket.AF_UNIX) as first,
    ):
        first.connect(str(path))
        yield listener, path


def test_a_client_waits_for_room_among_those_who_connect(crowded):
    listener, path = crowded
    listener.setblocking(True)

    def accept():
        time.sleep(0.3)
        listener.accept()[0].close()

    thread = threading.Thread(target=accept)
    thread.start()
    client.connect(path, 60).close()
    thread.join()


def test_a_client_waits_no_longer_than_it_would_for_a_reply(crowded):
    with pytest.raises(Unreachable, match="nobody answers"):
        client.connect(crowded[1], 0.2)
