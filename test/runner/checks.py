"""The parts that read the code instead of running it."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from processes import CHECKOUT

TOOLS = CHECKOUT / ".venv" / "bin"
# A directory of a broker, as an earlier version has left it.
WRITTEN_BY_RQ = CHECKOUT / "test" / "process" / "before_cluster" / "node"

Call = Callable[[list[str | Path]], str | None]
Findings = Iterator[tuple[str, str | None]]


def lint(call: Call) -> Findings:
    files = tracked()
    python = [path for path in files if speaks(path, ".py", rb"(python3?|rq-spark)")]
    shell = [path for path in files if speaks(path, ".sh", rb"(ba|da)?sh")]
    yield "ruff check", call([TOOLS / "ruff", "check", *python])
    yield "ruff format", call([TOOLS / "ruff", "format", "--check", *python])
    yield "codespell", call([TOOLS / "codespell", *files])
    yield "shellcheck", call([TOOLS / "shellcheck", *shell])
    ragged = [path.name for path in files if not ends_with_newline(path)]
    yield "newlines", f"none at the end of {', '.join(ragged)}" if ragged else None


def types(call: Call) -> Findings:
    yield "mypy", call([TOOLS / "mypy"])


def imports(call: Call) -> Findings:
    yield "lint-imports", call([TOOLS / "lint-imports", "--no-logo"])


CHECKS = {"lint": lint, "types": types, "imports": imports}


def tracked() -> list[Path]:
    """List the files of the project: tracked, or new and not ignored."""
    # safe.directory: root may run the tests of a checkout that somebody else owns.
    git = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(
        git, cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    paths = [CHECKOUT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file()]


def speaks(path: Path, suffix: str, interpreter: bytes) -> bool:
    """Tell by suffix or first line: launchers and bundled scripts have no suffix."""
    first = path.read_bytes().partition(b"\n")[0]
    named = re.match(rb"#!.*[/ ]" + interpreter + rb"( .*)?$", first)
    return path.suffix == suffix or named is not None


def ends_with_newline(path: Path) -> bool:
    content = path.read_bytes()
    if path.is_relative_to(WRITTEN_BY_RQ):
        return True
    return not content or b"\0" in content or content.endswith(b"\n")
