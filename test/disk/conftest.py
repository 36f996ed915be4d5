"""What tests of the spool begin with."""

import pytest
from harness.spool import Owner


@pytest.fixture
def owner(tmp_path):
    """An owner at work on a queue of its own; it ends as if it were killed."""
    made = Owner(tmp_path)
    made.open()
    yield made
    made.crash()
