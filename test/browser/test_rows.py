"""Rows that have still to become messages are told at each width, and the page follows
what becomes of them."""

import pytest
from harness import chromium
from harness.queues import kept
from harness.rows import RowsQueue
from harness.web_server import web_alone

NOTE = "document.getElementById('rows-still')"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def driver():
    chromium.need()
    with chromium.browser() as driver:
        yield driver


def test_the_page_of_a_queue_follows_its_rows(tmp_path, driver):
    with kept(RowsQueue(tmp_path)) as queue, web_alone(tmp_path) as web:
        queue.add(10, 15)
        queue.until_rows(15)
        for width in (chromium.NARROW, chromium.WIDE):
            chromium.size(driver, width)
            driver.get(f"http://127.0.0.1:{web.port}/q/t")
            chromium.until(driver, NOTE)
            assert chromium.text(driver, "#rows-still") == (
                "15 of those waiting are rows still: messages are made of them as their "
                "turn nears, and are listed here then."
            )
            assert driver.execute_script(f"return {SIDEWAYS}") == 0
        queue.each_ran_once(25)
        chromium.until(driver, f"!{NOTE}")
        assert chromium.violations(driver) == []
