"""What comes before Spark's part in CI has none of the packages that it installs."""

import re

import pytest
from harness.checkout import CHECKOUT

PACKAGES = "deltalake|duckdb|moto|pandas|polars|pyarrow|pyspark"
NEEDS = re.compile(
    rf'^(?:import|from) (?:{PACKAGES})\b|importorskip\(\s*"(?:{PACKAGES})"',
    re.MULTILINE,
)
USES = re.compile(r"^(?:from|import) harness(?:\.| import )(\w+)", re.MULTILINE)
FOLDERS = ("unit", "disk", "process", "system", "web", "browser", "packages", "hosts")


def needs(text):
    """Tell whether a module needs one of the packages, itself or by a harness."""
    if NEEDS.search(text):
        return True
    harnesses = (CHECKOUT / f"test/harness/{name}.py" for name in USES.findall(text))
    return any(NEEDS.search(path.read_text()) for path in harnesses if path.exists())


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_test_needs_what_is_not_installed_yet(folder):
    files = (CHECKOUT / "test" / folder).rglob("*.py")
    assert [path.name for path in files if needs(path.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "import {}\n".format("duckdb"),
        'pytest.importorskip("{}")'.format("deltalake"),
        "from {} import rows\n".format("harness.delta_jobs"),
    ],
)
def test_what_needs_them_is_seen(text):
    assert needs(text)
