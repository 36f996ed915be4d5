"""An RQ of a test's own, one that the tests of a file share, and an agent with its host."""

import pytest
from harness.agents import Agent
from harness.lease_host import lease_host
from harness.supervisor import daemon_on, lent


def is_forked(request):
    """Return whether an RQ of these tests is; how one starts is the subject of some."""
    return request.path.stem != "test_supervisor"


@pytest.fixture
def daemon(request, tmp_path):
    with daemon_on(tmp_path / "root", forked=is_forked(request)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def lasting(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("lasting") / "root"
    with daemon_on(path, forked=is_forked(request)) as daemon:
        yield daemon


@pytest.fixture
def shared(lasting):
    """Give an RQ that other tests use as well, each after the other."""
    with lent(lasting) as daemon:
        yield daemon


@pytest.fixture
def host():
    """Give a host of leases that the test plays."""
    with lease_host() as host:
        yield host


@pytest.fixture
def agent(tmp_path, host):
    return Agent(tmp_path, host)
