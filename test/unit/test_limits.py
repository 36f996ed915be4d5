"""Limits: what they may be, which is stricter, and what is said of one exceeded."""

import doctest

import pytest
from harness.spool import a_message
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadInput, BadMessage
from rq.message import limits
from rq.message.causes import Cause
from rq.message.limits import NONE, Limits, Used
from rq.message.message import from_disk, from_request
from rq.message.table import LIMITS

ID = "20270115.0800.00.000.1"


def test_the_examples_are_true():
    assert doctest.testmod(limits).failed == 0


def test_the_names_are_those_of_a_message():
    assert {*limits.NAMES, "deadline"} == LIMITS
    assert limits.CHECKS.keys() == set(limits.NAMES)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("timeout", 5, 5.0),
        ("timeout", "1h30m", 5400.0),
        ("grace", 0, 0.0),
        ("grace", "0", 0.0),
        ("heartbeat", "30", 30.0),
        ("memory", "512 MiB", 512 * 2**20),
        ("memory", "1048576", 2**20),
        ("memory", "2gib", 2**31),
        ("log_bytes", 4096, 4096),
        ("cpu_seconds", "10", 10),
        ("open_files", 16, 16),
        ("processes", 1, 1),
    ],
)  # fmt: skip
def test_what_a_limit_may_be(name, value, kept):
    assert limits.CHECKS[name](value) == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0), ("timeout", -1), ("timeout", 1e12), ("timeout", True),
        ("timeout", float("nan")), ("timeout", float("inf")), ("timeout", []),
        ("timeout", "soon"), ("grace", False), ("grace", -1), ("memory", "512 MB"),
        ("memory", "x"), ("memory", 1.5), ("memory", 0), ("memory", "9" * 30),
        ("memory", None), ("cpu_seconds", 1.5), ("cpu_seconds", 0),
        ("open_files", 3), ("processes", True), ("log_bytes", 1),
    ],
)  # fmt: skip
def test_what_no_limit_may_be(name, value):
    with pytest.raises((ValueError, BadInput)):
        limits.CHECKS[name](value)
    if value is not None:
        with pytest.raises(BadMessage, match=f"^{name}: "):
            from_request({"dest": "q", name: value}, ID, 0.0, "o")


def test_a_message_keeps_its_limits_as_numbers():
    fields = {"dest": "q", "timeout": "2m", "memory": "1 MiB", "deadline": "50"}
    message = from_request(fields, ID, 0.0, "o")
    assert message.limits == {"timeout": 120.0, "memory": 2**20, "deadline": 50.0}
    assert from_disk(message.encode(), ID, 0.0) == message
    assert "timeout" not in a_message().to_json()


def test_what_was_a_senders_own_field_stays_one():
    data = b'{"dest": "q", "grace": "of god", "timeout": 5}'
    message = from_disk(data, ID, 0.0)
    assert message.limits == {"timeout": 5.0}
    assert message.extra == {"grace": "of god"}
    assert message.to_json()["grace"] == "of god"


NUMBERS = st.none() | st.floats(0.1, 1e6)
SOME = st.fixed_dictionaries(dict.fromkeys(limits.NAMES, NUMBERS))


@given(SOME, SOME)
def test_the_stricter_is_never_looser_than_either(queue, message):
    both = limits.stricter(queue, message)
    for name in limits.NAMES:
        said = [each[name] for each in (queue, message) if each[name] is not None]
        assert getattr(both, name) == min(said, default=None)


@pytest.mark.parametrize(
    ("own", "after_due", "due", "now", "late"),
    [
        ({}, None, 0, 1e9, False),
        ({"deadline": 100.0}, None, 0, 100.0, False),
        ({"deadline": 100.0}, None, 0, 100.1, True),
        ({}, 10.0, 95, 105, False),
        ({}, 10.0, 95, 105.1, True),
        ({"deadline": 1000.0}, 10.0, 95, 106, True),
        ({"deadline": 100.0}, 1000.0, 95, 101, True),
    ],
)
def test_the_earlier_deadline_holds(own, after_due, due, now, late):
    assert (limits.too_late(own, after_due, due, now) is not None) is late


@pytest.mark.parametrize(
    ("ran", "silent", "cause", "text"),
    [
        (9.9, 2.9, None, None),
        (10, 0, Cause.TIMEOUT, "killed after 10.0 s: over its timeout of 10.0 s"),
        (250, 3, Cause.TIMEOUT, "killed after 4 min 10 s: over its timeout of 10.0 s"),
        (5, 3, Cause.HEARTBEAT, "killed after 5.0 s: no word for 3.0 s, its heartbeat"),
    ],
)
def test_too_long_or_too_silent(ran, silent, cause, text):
    over = limits.over_time(Limits(timeout=10.0, heartbeat=3.0), ran, silent)
    assert (over and over.cause, over and over.text) == (cause, text)
    assert limits.over_time(NONE, 1e9, 1e9) is None


MIB = 2**20
HOG = Limits(memory=512 * MIB, cpu_seconds=60)


@pytest.mark.parametrize(
    ("exit_status", "signal", "cpu", "peak", "kills", "cause"),
    [
        (0, None, 100, 600 * MIB, 1, None),  # it has succeeded all the same
        (1, None, 1, 500 * MIB, 0, Cause.MEMORY),
        (1, None, 1, 300 * MIB, 0, None),
        (1, None, 1, None, 0, None),
        (None, "SIGKILL", 1, 1, 1, Cause.MEMORY),
        (None, "SIGXCPU", 60, 1, 0, Cause.CPU),
        (152, None, 60, 1, 0, Cause.CPU),
        (None, "SIGKILL", 71, 1, 0, Cause.CPU),
        (None, "SIGKILL", 3, 1, 0, None),
        (1, None, 70, 1, 0, None),
    ],
)
def test_which_limit_the_kernel_has_kept(exit_status, signal, cpu, peak, kills, cause):
    used = Used(exit=exit_status, signal=signal, ran=250.0, cpu=cpu, peak=peak,
                oom_kills=kills)  # fmt: skip
    over = limits.over_resources(HOG, used)
    assert (over and over.cause) == cause
    if cause is Cause.MEMORY:
        assert over.text == "killed after 4 min 10 s: over its 512 MiB"
    assert limits.over_resources(NONE, used) is None
