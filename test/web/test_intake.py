"""Files that are being received."""

from __future__ import annotations

import os
import resource

import pytest

from rq.errors import Refused
from rq.web.intake import nameless


def test_without_descriptors_an_upload_is_refused_in_a_sentence(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limit[1]))
    try:
        with pytest.raises(Refused, match="Too many open files"):
            nameless(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
