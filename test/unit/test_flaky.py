"""Which failed tests are flaky: those that pass each time when they are run again."""

import pytest
from runner.flaky import find

TEST = "test/unit/test_a.py::test_a"


@pytest.mark.parametrize(
    ("again", "expected"),
    [([True, True], [TEST]), ([True, False], []), ([False, True], [])],
)
def test_one_that_passes_each_time_is_flaky(again, expected):
    passes = iter(again)
    assert find({TEST}, lambda _: next(passes)) == expected


@pytest.mark.parametrize("file", ["soak/test_soak.py", "system/test_random_kills.py"])
def test_what_is_random_is_not_run_again(file):
    assert find({f"test/{file}::test_a"}, lambda _: True) == []


def test_where_many_fail_something_is_broken():
    failed = {f"{TEST}{number}" for number in range(3)}
    assert find(failed, lambda _: True) == []
