"""Files that are sent in a form, which receivers alone get that are the ancestor."""

import contextlib
import os

import pytest
from harness.ancestor_http import old_receiver

from rq.files.durable import content
from rq.message.fields import Attachment
from rq.outbound import addresses, peers
from rq.outbound.line import Line
from rq.relay.remote import Remote


@pytest.mark.parametrize("name", ["a+b.c", "a b+.c", "100 (1).txt"])
def test_a_file_arrives_under_its_name_with_a_receiver_that_unescapes(tmp_path, name):
    folder = tmp_path / "20260102.0304.05.006.7"
    (folder / "attach").mkdir(parents=True)
    (folder / "attach" / name).write_bytes(b"cat")
    fd = os.open(folder, 0)
    sha, md5, size = content.digests(f"attach/{name}", fd)
    os.close(fd)
    known = Attachment(sha256=sha, md5=md5, size=size)
    with old_receiver() as old:
        to = peers.target(old.url)
        peer = peers.Peer(allow=addresses.allowed([to.place]))
        with contextlib.closing(Line(to, peer)) as line:
            remote = Remote(to, line)
            full_id = remote.prepare({"dest": old.url}, "k").remote
            remote.attach(full_id, name, folder / "attach" / name, known)
        assert list(old.files.values()) == [{name: b"cat"}]
