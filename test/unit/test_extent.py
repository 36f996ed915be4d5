"""Which share of the enumerated cases a run takes: those of a few commits take all."""

import itertools

import pytest
from harness import extent

CASES = [f"case{number}" for number in range(7)]
DISKS = ("kind", "mean")


@pytest.fixture
def taken(monkeypatch):
    """Give a function that returns the share of CI for a commit."""

    def share(cases, commit, ci):
        monkeypatch.setattr(extent, "FULL", True)
        monkeypatch.setattr(extent, "COMMIT", commit)
        return extent.share(cases, 9, ci=ci)

    return share


@pytest.mark.parametrize("ci", [1, 2, 3])
def test_commits_in_a_row_take_each_case_once(taken, ci):
    runs = [taken(CASES, f"{4000 + number}", ci) for number in range(ci)]
    assert sorted(itertools.chain(*runs)) == CASES
    assert all(runs)


def test_where_no_commit_is_named_all_are_taken(taken):
    assert taken(CASES, "", 2) == CASES


@pytest.mark.parametrize("number", [6, 7])
def test_each_commit_takes_each_story_and_both_disks(taken, number):
    pairs = extent.paired(CASES[:number], DISKS)
    assert sorted(pairs) == sorted(itertools.product(CASES[:number], DISKS))
    for commit in ("4000", "4001"):
        run = taken(pairs, commit, 2)
        assert [case for case, _ in run] == CASES[:number]
        assert {disk for _, disk in run} == set(DISKS)
