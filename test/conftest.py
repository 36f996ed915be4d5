"""What all tests share: their order, and a home in which shells start with nothing.

Scripts are started by a login shell, as a user's are. What the start-up files of whoever
runs the tests take, lock or print is no part of a test.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from harness import extent
from hypothesis import HealthCheck, settings

# How busy the machine is makes no test fail.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

STARTUP = {".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_logout"}
BARE = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Let HOME be a directory of links to all that is in it but the start-up files."""
    home = Path.home()
    bare = Path(tempfile.mkdtemp(prefix="rq-home-"))
    config.stash[BARE] = bare
    for path in home.iterdir() if home.is_dir() else ():
        if path.name not in STARTUP:
            (bare / path.name).symlink_to(path)
    os.environ["HOME"] = str(bare)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("slow_share", "of so many slow tests run one", default="1")
    parser.addini("file_share", "of so many files run one every day", default="1")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Put files that take long first: who comes to one last keeps all others waiting.
    Leave the slow tests out that are for another day, and the files."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    files = sorted({item.path for item in items})
    today = set(extent.of_today(files, int(config.getini("file_share"))))
    slow = [item for item in items if item.get_closest_marker("slow")]
    of = int(config.getini("slow_share"))
    left_out = set(slow).difference(extent.share(slow, of, ci=of))
    left_out.update(item for item in items if item.path not in today)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[BARE], ignore_errors=True)
