"""How long the soak of CI lasts: as long as the parts before it have left."""

import importlib.util

import pytest
from harness.checkout import CHECKOUT

MINUTE = 60.0


@pytest.fixture(scope="module")
def parts():
    """Give the module of the runner that holds the parts and their budgets."""
    path = CHECKOUT / "test/runner/parts.py"
    spec = importlib.util.spec_from_file_location("runner_parts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_after_quick_parts_it_lasts_ten_minutes(parts):
    assert parts.soak_seconds(20 * MINUTE) == 10 * MINUTE


def test_after_slow_parts_it_lasts_as_long_as_ci_has_left(parts):
    took = parts.WHOLE - 5 * MINUTE
    assert 2 * MINUTE < parts.soak_seconds(took) < parts.WHOLE - took


def test_it_is_never_left_out(parts):
    assert parts.soak_seconds(100 * MINUTE) == MINUTE


def test_the_budgets_leave_it_more_than_the_least(parts):
    others = sum(part.budget for part in parts.PARTS if not part.takes_rest)
    assert parts.soak_seconds(others) > MINUTE
