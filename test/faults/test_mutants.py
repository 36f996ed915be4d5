"""Planted bugs: a promise that no test defends is no promise."""

import pytest
from faults.mutants.plant import copied_tree, judge, mutants

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def tree():
    with copied_tree() as tree:
        yield tree


@pytest.mark.parametrize("mutant", mutants(), ids=lambda one: one.name)
def test_a_planted_bug_is_noticed(tree, mutant):
    verdict = judge(mutant, tree)
    if verdict.word == "skipped":
        pytest.skip("its test needs a C compiler -> apt-get install gcc libc6-dev")
    assert verdict.word == "killed", f"{verdict.word}: {verdict.by}"
