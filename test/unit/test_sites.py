"""Where a bug is planted by chance: in rules, not in what documents or logs them."""

import ast

import pytest
from faults.mutants.sites import changed
from faults.mutants.waiting import COMES_BY, with_marks

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
