"""Planted bugs: a promise that no test defends is no promise."""

import pytest
from faults.mutants.plant import copied_tree, judge, mutants
from harness.extent import share

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def tree():
    with copied_tree() as tree:
        yield tree


@pytest.mark.parametrize("mutant", share(mutants(), 4), ids=lambda one: one.name)
def test_a_planted_bug_is_noticed(tree, mutant):
    verdict = judge(mutant, tree)
    if verdict.word == "skipped":
        missing = "its test needs a C compiler or strace"
        pytest.skip(f"{missing} -> apt-get install gcc libc6-dev strace")
    assert verdict.word == "killed", f"{verdict.word}: {verdict.by}"
