"""What nodes send each other, byte for byte as the first nodes did: a node of today and one
of an earlier version share a cluster while one after the other is renewed.

A message that changes fails here. Give it a number of its own and go on reading the old
one, or let the bus have another version (`MAGIC`), which nodes of another one refuse.
"""

from pathlib import Path

import pytest

from rq.broker.bus.codec import decode, encode
from rq.broker.bus.frames import (
    MAGIC,
    PREAMBLE,
    BadFrame,
    Opener,
    OtherVersion,
    Sealer,
    check_magic,
    keys,
)
from rq.broker.cluster import messages
from rq.broker.cluster.gossip import Address, Greeting, HasFailed, Kind, Rumour

GOLDEN = Path(__file__).with_name("broker_bus.txt")
JOB = "D-abababab-AAECAwQFBgcICQoLDA0ODxAR-05a1"
NODES = "ab" * 20, "cd" * 20
COPY = messages.Copy(
    JOB, b"mail", b"\xffbody", 7 * 10**18, 86400.5, 2.0, 60.0, 3, 1, 2, NODES, 4
)
RUMOURS = (
    Rumour(NODES[1], Address("10.0.0.2", 7711, 17711), True, False),
    Rumour(NODES[0], Address("2001:db8::1", 1, 65535), False, True),
)
SAMPLES = {
    "replicate": messages.Replicate(COPY, False),
    "replicate quiet": messages.Replicate(COPY._replace(may_have=()), True),
    "kept": messages.Kept(JOB),
    "enqueue": messages.Enqueue(JOB, 1.5),
    "will queue": messages.WillQueue(JOB),
    "is queued": messages.IsQueued(JOB, 1, 2),
    "working": messages.Working(JOB),
    "set ack": messages.SetAck(JOB, NODES),
    "set ack bare": messages.SetAck(JOB, ()),
    "got ack": messages.GotAck(JOB, True),
    "delete": messages.Delete(JOB),
    "need": messages.Need(b"\xff", 100),
    "yours": messages.Yours((COPY, COPY)),
    "pause": messages.Pause(b"mail", True, False),
    "mark": messages.Mark(),
    "ping": Greeting(Kind.PING, 7711, 17711, False, RUMOURS, 2**40, 9),
    "pong": Greeting(Kind.PONG, 7711, 17711, True, ()),
    "meet": Greeting(Kind.MEET, 0, 0, False, ()),
    "has failed": HasFailed(NODES[0]),
}


def written():
    lines = GOLDEN.read_text().splitlines()
    return {
        name: bytes.fromhex(text)
        for name, _, text in (x.partition(": ") for x in lines)
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_each_message_is_written_and_read_as_ever(name):
    assert encode(SAMPLES[name]).hex() == written()[name].hex()
    assert decode(written()[name]) == SAMPLES[name]


def test_each_kind_of_message_is_among_them():
    kinds = {*messages.Message.__args__, Greeting, HasFailed}
    assert kinds == {type(message) for message in SAMPLES.values()}


def test_a_connection_begins_and_frames_look_as_ever():
    first, second = keys(b"a secret that both have", bytes(32), bytes(range(32)))
    frames = [Sealer(first).seal(bytes.fromhex(NODES[0])), Sealer(second).seal(b"\0x")]
    assert [MAGIC, *frames] == [written()[n] for n in ("magic", "frame", "frame back")]
    opener = Opener(first)
    opener.feed(frames[0])
    assert opener.next() == bytes.fromhex(NODES[0])


def test_another_version_is_named_and_what_is_no_node_is_not():
    with pytest.raises(
        OtherVersion, match="speaks version 3 between nodes, this one 2"
    ):
        check_magic(b"RQ-bus-3" + bytes(PREAMBLE - len(MAGIC)))
    with pytest.raises(BadFrame, match="does not begin as a node does"):
        check_magic(b"RQ-bux-1")
    for size in range(PREAMBLE):
        check_magic((MAGIC + bytes(32))[:size])
