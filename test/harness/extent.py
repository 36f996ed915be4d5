"""How much the tests do of what is enumerated: every day a share, and a larger one in CI.

CI takes other cases with every commit, so that the runs of a few commits take all.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

Case = TypeVar("Case")
Other = TypeVar("Other")

FULL = os.environ.get("CI") == "true"
SEED = int(os.environ.get("RQ_TEST_SEED", "0"))
COMMIT = os.environ.get("RQ_TEST_COMMIT", "")  # its number, as the runner says


def share(cases: Sequence[Case], of: int, ci: int = 1) -> list[Case]:
    """Return one case of `of`, others with another RQ_TEST_SEED; in CI one of `ci`, others
    with each commit, and all where no commit is named."""
    if not FULL:
        return list(cases)[SEED % of :: of]
    return list(cases)[int(COMMIT) % ci :: ci] if COMMIT else list(cases)


def of_today(cases: Sequence[Case], of: int) -> list[Case]:
    """Return one case of `of`, others with each commit and each RQ_TEST_SEED; in CI all."""
    turn = int(COMMIT or 0) + SEED
    return list(cases) if FULL else list(cases)[turn % of :: of]


def rotated(cases: Iterable[object], daily: int = 1) -> list[object]:
    """Return the cases of a test, the sharpest first: after so many that are run every
    day the others are slow tests, of which a share is."""
    return [
        case if number < daily else _slow(case) for number, case in enumerate(cases)
    ]


def _slow(case: object) -> object:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def paired(
    cases: Sequence[Case], pair: tuple[Other, Other]
) -> list[tuple[Case, Other]]:
    """Return each case with each of a pair, so ordered that half of the list, every other
    entry, has each case once and both of the pair."""
    return [
        (case, pair[(number + turn) % 2])
        for number, case in enumerate(cases)
        for turn in range(2)
    ]
