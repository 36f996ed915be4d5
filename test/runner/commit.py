"""The number of the commit that is tested: CI takes other cases with each."""

import os
import subprocess

from processes import CHECKOUT

NAME = "RQ_TEST_COMMIT"
_NUMBER = ["rev-list", "--count", "HEAD"]
_IS_SHALLOW = ["rev-parse", "--is-shallow-repository"]


def name_it() -> None:
    """Tell the tests the commit's number, unless somebody has said which one."""
    os.environ.setdefault(NAME, number())


def number() -> str:
    """Return how many commits lead here; nothing, where that cannot be told, lets all
    cases be taken."""
    return _git(_NUMBER) if _git(_IS_SHALLOW) == "false" else ""


def _git(words: list[str]) -> str:
    try:
        ran = subprocess.run(
            ["git", "-C", CHECKOUT, *words], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return ran.stdout.strip()


def taken(of: str) -> str:
    """Return what the closing table says of a part of which CI takes `of`; nothing if
    all is taken."""
    named = os.environ.get(NAME)
    return f"{of}, those of commit {named}; all with {NAME}=" if of and named else ""
