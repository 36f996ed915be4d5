"""Signing in and out with a real browser: the form needs nothing that is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness import chromium
from harness.web_server import Served, served

from rq.config import passwords

USERS = {"users": {"ann": passwords.make("correct horse")}}
_OF_THE_BROWSER = "status of 401"  # it tells of every answer that is an error


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Any]]:
    chromium.need()
    path = tmp_path_factory.mktemp("root") / "rq"
    with served(path, basic_auth=USERS) as web, chromium.browser() as driver:
        yield web, driver


@pytest.mark.slow
def test_a_person_signs_in_is_named_on_the_page_and_signs_out(
    stage: tuple[Served, Any], axe: str
) -> None:
    web, driver = stage
    driver.get(f"http://127.0.0.1:{web.port}/timers")
    driver.execute_script(axe)
    found = driver.execute_async_script("axe.run().then(arguments[0])")
    assert [rule["id"] for rule in found["violations"]] == []
    fill(driver, "ann", "wrong")
    chromium.until(driver, "document.querySelector('.said') !== null")
    fill(driver, "ann", "correct horse")
    chromium.until(driver, "document.getElementById('sign-out') !== null")
    assert driver.current_url.endswith("/timers")
    assert driver.execute_script("return reader.textContent") == "ann"
    assert driver.execute_script("return document.cookie") == "", "scripts see none"
    driver.execute_script("document.querySelector('#sign-out button').click()")
    chromium.until(driver, "location.pathname === '/login'")
    driver.get(f"http://127.0.0.1:{web.port}/")
    assert driver.execute_script("return document.title") == "RQ :: sign in"
    said = [text for text in chromium.violations(driver) if _OF_THE_BROWSER not in text]
    assert said == []


def fill(driver: Any, name: str, password: str) -> None:
    driver.find_element("id", "name").send_keys(name)
    driver.find_element("id", "password").send_keys(password + "\n")
