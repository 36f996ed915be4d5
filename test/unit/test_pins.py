"""requirements.lock agrees with pyproject.toml, in what it says and in what it pins."""

import re
import runpy

import pytest
from harness.checkout import CHECKOUT
from packaging.requirements import Requirement
from packaging.version import Version

PINS = runpy.run_path(str(CHECKOUT / "bin/pins.py"))
PYPROJECT = CHECKOUT / "pyproject.toml"
LOCK = (CHECKOUT / PINS["NAME"]).read_text()
GROUPS = PINS["groups"](PYPROJECT)


def pinned(group):
    """Return the versions of each package of a group."""
    found = {}
    for pin in PINS["pins"](LOCK, {group}):
        requirement = Requirement(PINS["without_hashes"](pin))
        (version,) = requirement.specifier
        assert version.operator == "=="
        found.setdefault(requirement.name, []).append(Version(version.version))
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_each_requirement_is_pinned_to_versions_that_satisfy_it(group):
    there = pinned(group)
    for text in GROUPS[group]:
        requirement = Requirement(text)
        versions = there.get(requirement.name, [])
        assert versions, f"{text} is not pinned: run bin/lock.py"
        assert all(requirement.specifier.contains(one) for one in versions), text


def test_the_lock_was_made_from_these_lists():
    assert PINS["not_pinned"](PYPROJECT, LOCK, set(GROUPS)) == []
    assert PINS["recorded"](LOCK) == GROUPS


def test_each_pin_has_hashes_and_no_index_is_named():
    packages = PINS["pins"](LOCK, set(GROUPS))
    assert len(packages) > 50
    for pin in packages:
        first, *hashes = pin.split(" \\\n    ")
        assert "==" in first
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
    assert "://" not in LOCK


def test_a_group_that_nobody_knows_pins_nothing():
    assert PINS["pins"](LOCK, {"none"}) == []
