"""A headless Chromium of Debian's, and what tests ask of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WIDE, NARROW = 1280, 390
PATIENCE = 60.0  # seconds: a browser beside two others, on a busy machine
AXE = "axe-core@4.14.1"
PROGRAMS = ("chromium", "chromedriver")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
# Seen in every document before its own scripts: what a hostile text would have done.
_WITNESS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__violations.push(event.violatedDirective + " " + event.blockedURI);
});
window.addEventListener("error", (event) => {
  window.__violations.push("error: " + event.message);
});
window.alert = window.confirm = window.prompt = (text) => {
  window.__violations.push("dialog: " + text);
};
"""


def need() -> None:
    """Skip unless there is a browser and the way to drive it."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]} -> apt-get install chromium chromium-driver")
    pytest.importorskip("selenium", reason="no selenium -> ./test/run_tests.sh")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Give a browser with a profile of its own; nothing of it is left."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(prefix="rq-chromium-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(
            executable_path=str(shutil.which("chromedriver")), log_output=os.devnull
        )
        driver = webdriver.Chrome(options=options, service=service)
        try:
            source = {"source": _WITNESS}
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
            driver.set_script_timeout(PATIENCE * 2)
            size(driver, WIDE)
            yield driver
        finally:
            driver.quit()


def size(driver: Any, width: int, height: int = 900) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def theme(driver: Any, name: str) -> None:
    """Let the system say `light` or `dark`."""
    feature = {"name": "prefers-color-scheme", "value": name}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def until(driver: Any, script: str, seconds: float = PATIENCE) -> Any:
    """Return the first true value of a JavaScript expression."""
    from selenium.common.exceptions import JavascriptException
    from selenium.webdriver.support.ui import WebDriverWait

    # What a page needs to answer may come a moment after the page.
    wait = WebDriverWait(driver, seconds, 0.05, [JavascriptException])
    return wait.until(
        lambda one: one.execute_script(f"return {script}"), message=script
    )


def violations(driver: Any) -> list[str]:
    """Return what the page did that it should not have."""
    told = list(driver.execute_script("return window.__violations || []"))
    severe = [
        one["message"] for one in driver.get_log("browser") if one["level"] == "SEVERE"
    ]
    return told + severe


@contextlib.contextmanager
def without_scripts(driver: Any) -> Iterator[None]:
    """See pages as a browser without JavaScript shows them."""
    off = "Emulation.setScriptExecutionDisabled"
    driver.execute_cdp_cmd(off, {"value": True})
    try:
        yield
    finally:
        driver.execute_cdp_cmd(off, {"value": False})


def click(driver: Any, selector: str, seconds: float = PATIENCE) -> None:
    """Click what a reader would, once it is there and does not move any more."""
    from selenium.common import exceptions
    from selenium.webdriver.support.ui import WebDriverWait

    not_clicked = (
        exceptions.NoSuchElementException,
        exceptions.StaleElementReferenceException,
        exceptions.ElementNotInteractableException,
        exceptions.ElementClickInterceptedException,
    )

    def clicked(one: Any) -> bool:
        one.find_element("css selector", selector).click()
        return True

    WebDriverWait(driver, seconds, 0.05, not_clicked).until(clicked, message=selector)


def confirm(driver: Any, selector: str) -> None:
    """Click a button that asks, and say yes."""
    click(driver, selector)
    click(driver, "dialog[open] form[method=post] button")


def text(driver: Any, selector: str = "main") -> str:
    return str(driver.find_element("css selector", selector).text)


def shows(
    driver: Any, wanted: str, selector: str = "main", seconds: float = PATIENCE
) -> None:
    """Wait until a part of the page shows a text, without loading it again."""
    part = f"document.querySelector({selector!r})"
    said = f"({part}?.innerText ?? '').replace(/\\s+/g, ' ')"
    until(driver, f"{said}.includes({wanted!r})", seconds)


def axe() -> str:
    """Return the source of axe-core, which looks for what shuts readers out."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            subprocess.run(
                ["npm", "pack", "--silent", AXE],
                cwd=directory,
                check=True,
                capture_output=True,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError):
            pytest.skip(f"no {AXE} -> apt-get install npm, and a way to its registry")
        [archive] = Path(directory).glob("*.tgz")
        with tarfile.open(archive) as packed:
            source = packed.extractfile("package/axe.min.js")
            assert source
            return source.read().decode()


def unfit_for_readers(driver: Any, axe_core: str) -> dict[str, list[str]]:
    """Return what axe-core calls serious on a page, and where: light and dark, wide and
    narrow; fail if it is wider than its window."""
    serious: dict[str, list[str]] = {}
    for choice in ("light", "dark"):
        theme(driver, choice)
        for width in (WIDE, NARROW):
            size(driver, width)
            serious |= _serious(driver, axe_core)
            spread = "document.documentElement.scrollWidth > innerWidth"
            too_wide = driver.execute_script(f"return {spread}")
            assert not too_wide, f"{width} px: too wide"
    return serious


def _serious(driver: Any, axe_core: str) -> dict[str, list[str]]:
    # Over the debugger's line: the page's own policy lets no such script in.
    driver.execute_script(axe_core)
    result = driver.execute_async_script(
        "const done = arguments[0];"
        "axe.run(document, {resultTypes: ['violations']}).then(done);"
    )
    return {
        each["id"]: [
            f"{node['target']} {node['failureSummary']}" for node in each["nodes"]
        ]
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    }
