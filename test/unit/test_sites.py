"""Where a bug is planted by chance: in rules, not in what documents or logs them."""

import ast

import pytest
from faults.mutants.passing import Ran
from faults.mutants.sites import changed
from faults.mutants.waiting import COMES_BY, in_turn, with_marks

CODE = """
@dataclass(frozen=True)
class Rule:
    'A rule, and not a bug.'
    size: int = 1

    def holds(self, text: str, strict: bool | None = None) -> bool:
        log.info("not here", 1 + 1)
        if not text and self.size >= 2:
            raise ValueError(0)
        self.look(text)
        return zip(text, text, strict=True) is not None
"""
NEW = [
    "size: int = 2",
    "if  text and",
    "text or self",
    "self.size > 2",
    "        pass\n        self.look",
    "pass\n        return",
    "strict=True) is None",
]


def test_each_rule_is_changed_once_and_nothing_else():
    texts = [text for _, text in changed(CODE)]
    assert len(texts) == len(NEW)
    for text, new in zip(texts, NEW, strict=True):
        assert new in text
        compile(text, "rule", "exec")


@pytest.mark.parametrize("code", ["x: int | None", "'a - b'", "import a", "x = 'a+b'"])
def test_what_is_no_rule_stays(code):
    assert list(changed(code)) == []


MARKED = """
class Rule:
    def holds(self, size=1):
        if self.least:
            return False
        elif (self.most and
                self.most > 1):
            raise ValueError
        return size
"""


def test_who_comes_by_a_place_is_noted_before_its_statement():
    module = with_marks(MARKED, "rule.py", [3, 6, 7, 8, 9])
    lines = ast.unparse(module).splitlines()
    after = {
        line.strip(): lines[number + 1].split()[0]
        for number, line in enumerate(lines)
        if COMES_BY in line
    }
    # A default is set at the import, whoever comes by later.
    assert after == {
        f"{COMES_BY}('rule.py:6')": f"{COMES_BY}('rule.py:7')",
        f"{COMES_BY}('rule.py:7')": "if",
        f"{COMES_BY}('rule.py:8')": "raise",
        f"{COMES_BY}('rule.py:9')": "return",
    }


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ("if due <= now: pass", "if due > now: pass"),
        ("if now < self.until: pass", "if now >= self.until: pass"),
        ("if time.monotonic() >= at: pass", "if time.monotonic() < at: pass"),
        ("if size <= most: pass", "if size < most: pass"),
        ("if known < most: pass", "if known <= most: pass"),
    ],
)
def test_before_becomes_after_for_no_two_moments_are_the_same(code, new):
    assert [text for _, text in changed(code)] == [new]


def test_the_tests_of_a_place_come_first_and_the_quickest_of_each_file():
    tests = [
        (0.5, "test/disk/test_index.py::test_a"),
        (0.1, "test/disk/test_index.py::test_b"),
        (3.0, "test/process/test_lease_trouble.py::test_c"),
        (9.0, "test/process/test_leases.py::test_d"),
        (0.2, "test/unit/test_x.py::test_e"),
    ]
    every = in_turn("rq/queues/leases/desk.py:7", tests, 99.0)
    assert [name[-1] for name in every] == ["c", "d", "b", "e", "a"]
    assert in_turn("rq/queues/leases/desk.py:7", tests, 12.2) == every[:3]


def test_a_test_has_passed_a_place_if_its_own_processes_did_while_it_ran():
    ran = Ran("test_a", "gw1", 10.0, 12.0)
    for marks, places in (
        ({"gw1": [(9.9, "a:1"), (11.0, "b:1"), (12.1, "c:1")]}, {"b:1"}),
        ({"gw1": [(10.0, "a:1"), (12.0, "b:1")]}, {"a:1", "b:1"}),
        ({"gw1": [(9.9, "a:1"), (12.1, "a:1")]}, set()),
        ({"gw0": [(11.0, "a:1")]}, set()),
        ({"gw0": [(11.0, "a:1")], "-": [(10.5, "b:1")]}, {"b:1"}),
        ({}, set()),
    ):
        assert ran.passed(marks) == places
