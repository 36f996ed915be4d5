"""How much the tests do: all of it in CI, and every day a share of what is enumerated."""

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

FULL = os.environ.get("CI") == "true"
SEED = int(os.environ.get("RQ_TEST_SEED", "0"))


def share(cases: Sequence[Case], of: int) -> list[Case]:
    """Return one case of `of`, others with another RQ_TEST_SEED; all of them in CI."""
    return list(cases) if FULL else list(cases)[SEED % of :: of]
