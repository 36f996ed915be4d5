"""Three nodes of a broker on three hosts: links that are cut, in one direction too, or
slow; jobs are copied where they can be, and come again when a host is gone."""

import contextlib
import subprocess
import sys
import time

import pytest
from harness import spaces
from harness.broker import Broker, Refused, Simple
from harness.brokers import Nodes
from harness.waiting import wait_until
from hosts.conftest import connected

pytestmark = pytest.mark.system
ALL = range(3)
SECRET = "a secret for the nodes of a test"


class NodeOnHost(Broker):
    """A node in the namespace of a host."""

    def __init__(self, directory, host):
        super().__init__(directory)
        self.host = host
        self.before = ["ip", "netns", "exec", host.space]

    def door(self):
        return spaces.connected(self.host.space, self.port)


class Links:
    """What becomes of the packets between hosts, by the indexes of their nodes."""

    def __init__(self, net):
        self._net = net

    @contextlib.contextmanager
    def one_way(self, sender, to):
        """Let nothing of what one sends come to another."""
        words = "astray", str(sender + 1), str(to + 1)
        self._net.say(*words, "on")
        try:
            yield
        finally:
            self._net.say(*words, "off")

    @contextlib.contextmanager
    def cut(self, one, other):
        with self.one_way(one, other), self.one_way(other, one):
            yield

    @contextlib.contextmanager
    def unplugged(self, index):
        self._net.hosts[index].plug("down")
        try:
            yield
        finally:
            self._net.hosts[index].plug("up")

    @contextlib.contextmanager
    def slow(self, index, kbit):
        try:
            self._net.hosts[index].slow(kbit)
        except subprocess.CalledProcessError:
            pytest.skip("the kernel has no sch_tbf -> modprobe sch_tbf")
        try:
            yield
        finally:
            self._net.hosts[index].slow(0)


@pytest.fixture(scope="module")
def cables(tmp_path_factory):
    with connected(tmp_path_factory.mktemp("hosts"), len(ALL)) as net:
        yield net


@pytest.fixture(scope="module")
def nodes(cables, tmp_path_factory):
    """Three nodes that know each other; a test leaves them so."""
    directory = tmp_path_factory.mktemp("nodes")
    secret = directory / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    brokers = [NodeOnHost(directory / str(n), cables.hosts[n]) for n in ALL]
    for broker in brokers:
        broker.words += ["--bus-addr", broker.host.address]
    try:
        nodes = Nodes(brokers, "--secret-file", str(secret))
        nodes.hosts = [broker.host.address for broker in brokers]
        nodes.join()
        yield nodes
    finally:
        for broker in brokers:
            broker.close()


@pytest.fixture
def links(nodes, cables):
    yield Links(cables)
    nodes.wait_until_all_reach_all(60)


def add(nodes, index, *options, timeout=1000, queue="q"):
    return nodes.ask(index, "ADDJOB", queue, "x" * 500, timeout, *options)


def is_added(answer):
    return isinstance(answer, Simple)


def until_silent(nodes, index, other):
    """Wait until a node does not count on another one."""
    wait_until(lambda: nodes.sees(index, other)[0] in ("fail?", "fail"))


def until_gone(nodes, job_ids):
    """Acknowledged jobs go everywhere once links stand again."""
    wait_until(lambda: not any(map(nodes.holders, job_ids)), 90)


def refused_in_time(nodes, index):
    """ADDJOB gets its refusal when its time is over, or before."""
    began = time.monotonic()
    answer = add(nodes, index, "REPLICATE", 3, "RETRY", 1, timeout=1500)
    assert isinstance(answer, Refused), answer
    assert answer.startswith("NOREPL ")
    say(f"NOREPL of 1.5 s after {time.monotonic() - began:.2f} s")


def say(text):
    sys.stdout.write(f"{text}\n")


def test_a_host_that_is_unplugged(nodes, links):
    before = [add(nodes, n, "REPLICATE", 3, "RETRY", 60, timeout=9000) for n in ALL]
    with links.unplugged(2):
        refused_in_time(nodes, 0)
        refused_in_time(nodes, 2)
        copied = wait_until(
            lambda: (
                is_added(answer := add(nodes, 0, "REPLICATE", 2, "RETRY", 60))
                and answer
            )
        )
        alone = add(nodes, 2, "REPLICATE", 1, "RETRY", 60)
        assert is_added(alone)
        until_silent(nodes, 0, 2)
        refused_in_time(nodes, 0)
        for job_id in before:
            nodes.ask(1, "ACKJOB", job_id)
        nodes.ask(0, "ACKJOB", copied)
        nodes.ask(1, "ACKJOB", alone)  # which it does not know
        assert all(2 in nodes.holders(job_id) for job_id in [*before, alone])
    until_gone(nodes, [*before, copied, alone])


def test_two_hosts_that_cannot_reach_each_other_but_a_third(nodes, links):
    with links.cut(0, 1):
        refused_in_time(nodes, 0)
        until_silent(nodes, 0, 1)
        until_silent(nodes, 1, 0)
        job_ids = [add(nodes, n, "REPLICATE", 2, "RETRY", 60) for n in (0, 1) * 3]
        assert all(map(is_added, job_ids))
        for number, job_id in enumerate(job_ids):
            nodes.ask((number + 1) % 2, "ACKJOB", job_id)  # beyond the cut
    until_gone(nodes, job_ids)


@pytest.mark.parametrize(("sender", "to"), [(0, 1), (1, 0)])
def test_a_link_that_carries_in_one_direction_only(nodes, links, sender, to):
    with links.one_way(sender, to):
        refused_in_time(nodes, 0)
        until_silent(nodes, 0, 1)
        job_ids = [add(nodes, n, "REPLICATE", 2, "RETRY", 60) for n in (0, 1) * 3]
        assert all(map(is_added, job_ids))
        for number, job_id in enumerate(job_ids):
            nodes.ask((number + 1) % 2, "ACKJOB", job_id)
    until_gone(nodes, job_ids)


@contextlib.contextmanager
def patient(nodes, seconds):
    """Let nodes wait longer for one another than the tests beside this one."""
    for index in ALL:
        milliseconds = seconds * 1000
        nodes.ask(index, "CONFIG", "SET", "cluster-node-timeout", milliseconds)
    try:
        yield
    finally:
        for index in ALL:
            nodes.hurry(index)


def test_a_host_behind_a_slow_link(nodes, links):
    two, three = ("REPLICATE", 2, "RETRY", 60), ("REPLICATE", 3, "RETRY", 60)
    with patient(nodes, 8), links.slow(2, 64):
        answers = [add(nodes, 0, *two, timeout=20_000) for _ in range(20)]
        answers += [add(nodes, n, *three, timeout=20_000) for n in ALL]
        assert [each for each in answers if not is_added(each)] == []
        for number, job_id in enumerate(answers):
            nodes.ask(number % 2, "ACKJOB", job_id)
    until_gone(nodes, answers)


@pytest.mark.slow
def test_a_large_job_on_a_slow_link_keeps_no_sign_of_life_behind_it(nodes, links):
    """It is under way for over 10 s."""
    queue, body = "large", "x" * 1_600_000
    with patient(nodes, 8), links.slow(2, 1024):
        began = time.monotonic()
        job_id = nodes.ask(
            0, "ADDJOB", queue, body, 60_000, "REPLICATE", 3, "ASYNC", "RETRY", 600
        )
        assert is_added(job_id), job_id
        seen = set()
        while nodes.holders(job_id) != [*ALL]:
            seen |= {nodes.sees(0, 2)[0], nodes.sees(1, 2)[0]}
            assert time.monotonic() - began < 60, seen
            time.sleep(0.2)
        say(f"copied after {time.monotonic() - began:.1f} s")
        assert not [flags for flags in seen if "fail" in flags], seen
        nodes.ask(0, "ACKJOB", job_id)
    until_gone(nodes, [job_id])


@pytest.mark.parametrize("end", ["kill", "unplug"])
def test_a_job_comes_again_when_the_node_that_gave_it_is_gone(nodes, links, end):
    retry = 2
    queue = f"until {end}"  # its own: what got -NOREPL may be handed out all the same
    options = "REPLICATE", 3, "RETRY", retry
    job_id = add(nodes, 2, *options, timeout=9000, queue=queue)
    queued = time.monotonic()
    (job,) = nodes.ask(2, "GETJOB", "FROM", queue)
    assert job[1].decode() == job_id
    with contextlib.ExitStack() as stack:
        if end == "kill":
            nodes.kill(2)
            stack.callback(nodes.start, 2)
        else:
            stack.enter_context(links.unplugged(2))
        get = "GETJOB", "NOHANG", "FROM", queue
        (job,) = wait_until(lambda: nodes.ask(0, *get) or nodes.ask(1, *get))
        took = time.monotonic() - queued
        met = "met" if took <= retry + 1 else "MISSED"
        say(f"again after {took:.2f} s; goal {retry + 1} s {met}")
        assert job[1].decode() == job_id
        nodes.ask(0, "ACKJOB", job_id)
    until_gone(nodes, [job_id])
