"""An RQ of a test's own, and one that the tests of a file share."""

import pytest
from harness.supervisor import daemon_on, lent


@pytest.fixture
def daemon(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    with daemon_on(tmp_path_factory.mktemp("lasting") / "root") as daemon:
        yield daemon


@pytest.fixture
def shared(lasting):
    """Give an RQ that other tests use as well, each after the other."""
    with lent(lasting) as daemon:
        yield daemon
