"""Planted bugs: a promise that no test defends is no promise."""

from importlib.util import find_spec

import pytest
from faults.mutants.plant import copied_tree, judge, mutants, run_pytest
from harness.extent import share

pytestmark = pytest.mark.process
HAS_SPARK = all(find_spec(name) for name in ("pyspark", "duckdb"))
# Without Spark, tests that import it are not there.
MUTANTS = [
    mutant
    for mutant in mutants()
    if HAS_SPARK or not any(test.startswith("test/spark") for test in mutant.killed_by)
]


@pytest.fixture(scope="module")
def tree():
    with copied_tree() as tree:
        yield tree


def test_every_test_that_must_notice_a_bug_is_there(tree):
    named = sorted({test for mutant in MUTANTS for test in mutant.killed_by})
    collected = run_pytest(tree, "--collect-only", *named)
    assert collected.returncode == 0, collected.stdout + collected.stderr


@pytest.mark.parametrize("mutant", share(MUTANTS, 16, ci=12), ids=lambda one: one.name)
def test_a_planted_bug_is_noticed(tree, mutant):
    verdict = judge(mutant, tree)
    if verdict.word == "skipped":
        missing = "its test needs a C compiler or strace"
        pytest.skip(f"{missing} -> apt-get install gcc libc6-dev strace")
    assert verdict.word == "killed", f"{verdict.word}: {verdict.by}"
