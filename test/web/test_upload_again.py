"""A file that was received in pieces and attached, though its sender has not heard so."""

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from rq.files.durable import content
from rq.web.resumable_uploads import opened

NOBODY = 65534


@pytest.fixture
def uploads():
    """A directory of a user who, unlike root, is held by the mode of a file."""
    path = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(path, NOBODY, -1)
        os.seteuid(NOBODY)
    yield path
    if root:
        os.seteuid(0)
    shutil.rmtree(path)


@pytest.mark.parametrize("gone", [False, True], ids=["there", "message gone"])
def test_what_was_attached_is_left_as_it_is_and_begun_anew(uploads, gone):
    place, attached = uploads / "a.part", uploads / "a.bin"
    with closing(opened(place)) as intake:
        intake.write([b"whole"])
        fd = os.open(uploads, os.O_RDONLY)
        assert content.take_in(intake.fd, attached.name, fd)
        os.close(fd)
    if gone:
        attached.unlink()
    with closing(opened(place)) as intake:
        assert os.fstat(intake.fd).st_size == 0
        intake.write([b"another"])
    assert gone or attached.read_bytes() == b"whole"
