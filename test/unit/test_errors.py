"""The disk is named only where it is the disk."""

import errno
import os

import pytest

from rq import errors

DISK = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EUCLEAN]
OTHER = [errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP]


@pytest.mark.parametrize("number", DISK)
def test_what_the_disk_refuses_is_told_of_the_disk(number):
    error = OSError(number, os.strerror(number), "/r/queue/t/msg")
    said = str(errors.not_done(error))
    assert said == f"not done, the disk refused it: {os.strerror(number)}"


@pytest.mark.parametrize("number", OTHER)
def test_what_a_file_refuses_is_not_told_of_the_disk(number):
    error = OSError(number, os.strerror(number), "/r/queue/t/msg")
    said = str(errors.not_done(error))
    assert os.strerror(number) in said
    assert "disk" not in said
    assert "/r/" not in said
