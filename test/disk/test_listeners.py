"""The sockets of parked queues, of which no more are held than may be open."""

import logging
import socket

from rq.config.parked import End
from rq.layout import Root
from rq.proc import descriptors
from rq.supervisor.listeners import Listeners


def test_it_is_told_once_that_no_more_can_be_held(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(descriptors, "limit", lambda: 4)
    held = Listeners(Root(tmp_path), lambda _: None)
    caplog.set_level(logging.WARNING)
    for number in range(3):
        assert held.has_room
        end = End(journal="j", seq=1, socket=[])
        held.hold(f"q{number}", socket.socket(socket.AF_UNIX), end)
        held.tell_if_full()
        held.tell_if_full()
    assert not held.has_room
    assert [record.getMessage() for record in caplog.records] == [
        "3 queues are parked, and this process may open 4 descriptors: one more is started "
        "again at once; raise LimitNOFILE in rq.service, or `ulimit -n`"
    ]
    for listens in held._held.values():
        listens.close()
