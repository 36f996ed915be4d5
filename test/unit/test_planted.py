"""The list of planted bugs is true: each can be planted where it says."""

from collections import Counter

from faults.mutants.chance import without_meaning
from faults.mutants.plant import CHECKOUT, mutants

PLANTED = mutants()


def test_a_planted_bug_has_its_one_place():
    stale = [
        f"{mutant.file}: {mutant.name}"
        for mutant in PLANTED
        if (CHECKOUT / mutant.file).read_text().count(mutant.old) != 1
    ]
    assert stale == []


def test_no_two_planted_bugs_have_one_name():
    assert Counter(one.name for one in PLANTED).most_common(1)[0][1] == 1


def test_a_line_that_may_be_changed_without_a_meaning_is_there_and_says_why():
    for same in without_meaning():
        assert len(same.places()) == 1, same
        assert len(same.why) > 20
