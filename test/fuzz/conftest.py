"""How long and how randomly: the same examples every day, others by hand.

    RQ_FUZZ_EXAMPLES=20000 ./test/run_tests.sh fuzz

tries so many new ones of each kind and prints what reproduces a failure.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("RQ_FUZZ_EXAMPLES", "0"))
# A slow machine is no failure, and no example may depend on what another run has seen.
settings.register_profile(
    "everyday",
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile(
    "long",
    parent=settings.get_profile("everyday"),
    max_examples=EXAMPLES or 150,
    derandomize=False,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
settings.load_profile("long" if EXAMPLES else "everyday")
