"""Reads requirements.lock: the one list of packages that RQ installs, with their hashes.

Standard library alone. The file is one that pip can take as it is; of its comments,
`# GROUP: REQUIREMENT, ...` says what pyproject.toml asked for when it was made, and
`# for: GROUP, ...` for whom the package below is.
"""

import re
import tomllib
from pathlib import Path

BASE = "base"  # the dependencies of RQ itself; the other groups are its extras
BUILD = "build"  # what builds a package that comes as source
NAME = "requirements.lock"

_FOR = "# for: "
_ASKED = re.compile(r"# ([a-z][a-z-]*): (.*)")


def groups(pyproject: Path) -> dict[str, list[str]]:
    """Return what pyproject.toml asks for: group -> requirements."""
    data = tomllib.loads(pyproject.read_text())
    project = data["project"]
    return {
        BASE: sorted(project["dependencies"]),
        BUILD: sorted([*data.get("build-system", {}).get("requires", []), "wheel"]),
        **{
            name: sorted(wanted)
            for name, wanted in sorted(project["optional-dependencies"].items())
        },
    }


def recorded(lock: str) -> dict[str, list[str]]:
    """Return what was asked for when the lock was made: group -> requirements."""
    head = lock.partition(_FOR)[0]
    lines = (_ASKED.fullmatch(line) for line in head.splitlines())
    return {line[1]: line[2].split(" | ") for line in lines if line}


def pins(lock: str, wanted: set[str]) -> list[str]:
    """Return the packages of these groups, each as pip reads it, with its hashes."""
    packages = []
    for block in lock.split(_FOR)[1:]:
        owners, _, text = block.partition("\n")
        if wanted & set(owners.split(", ")):
            packages.append(text.strip())
    return packages


def without_hashes(pin: str) -> str:
    """Return a package and its version alone."""
    return pin.partition(" \\\n")[0]


def not_pinned(pyproject: Path, lock: str, wanted: set[str]) -> list[str]:
    """List what pyproject.toml asks for, and did not when the lock was made."""
    there = recorded(lock)
    return sorted(
        requirement
        for group, requirements in groups(pyproject).items()
        if group in wanted
        for requirement in set(requirements) - set(there.get(group, []))
    )
