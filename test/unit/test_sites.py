"""Where a bug is planted by chance: in rules, not in what documents or logs them."""

import pytest
from faults.mutants.sites import changed

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
