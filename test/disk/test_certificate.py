"""Certificates are renewed while they serve, and looked at now and then."""

import time

from harness.certificates import certify
from harness.waiting import wait_until

from rq.access.tls import LOOK, Certificate


def test_files_that_change_serve_after_the_next_look_and_no_connection_looks(tmp_path):
    certify(tmp_path, 1)
    cert, key = (tmp_path / name for name in ("cert.pem", "key.pem"))
    served = Certificate(cert, key)
    begun, before = time.monotonic(), served.context()
    certify(tmp_path, 2)
    at_once = served.context()
    assert at_once is before or time.monotonic() - begun > LOOK
    wait_until(lambda: served.context() is not before, 60)
