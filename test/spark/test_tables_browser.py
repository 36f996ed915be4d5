"""`/tables` and the page of a table in a browser: what is written while one looks, seen by all."""

from __future__ import annotations

import time

import pytest
from harness import chromium, delta_showcase
from harness.delta_showcase import HITS
from harness.web_server import web_alone

from rq.config import files
from rq.layout import Root

pytestmark = pytest.mark.process

ID = "20260101.0101.01.001.1795254001000000001"
PATHS = ("/tables", "/tables/reports/hits", "/tables/reports/hits__rejected")


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """Give the web of a root in which a queue has written a table for a week."""
    root = Root(tmp_path_factory.mktemp("root"))
    files.make_queue(root.queue("reports"), {"script": "/bin/true"}, {})
    delta_showcase.write_week(root, [ID])
    delta_showcase.hold(root, "reports", ID, "hits: n is long in the table")
    with web_alone(root.path) as made:
        made.root = root
        yield made


@pytest.fixture(scope="module")
def driver():
    chromium.need()
    with chromium.browser() as made:
        yield made


def at(driver, web, path):
    driver.get(f"http://127.0.0.1:{web.port}{path}")
    chromium.until(driver, "!document.getElementById('theme').hidden")


@pytest.mark.slow
def test_pages_with_rows_are_fit_for_all_readers(driver, web):
    axe = chromium.axe()
    for path in PATHS:
        at(driver, web, path)
        assert "hits" in chromium.text(driver)
        assert chromium.unfit_for_readers(driver, axe) == {}, path
        assert chromium.violations(driver) == []


def test_a_table_leads_from_the_list_to_its_messages(driver, web):
    chromium.size(driver, chromium.WIDE)
    at(driver, web, "/tables")
    chromium.click(driver, "#table-rows a[href='/tables/reports/hits']")
    chromium.shows(driver, "28 files")
    for title in ("Rows that came", "What was expected"):
        figure = f"figure:has(svg[aria-label^='{title}'])"
        chromium.shows(driver, title, figure)
        tall = f"document.querySelector({figure + ' .bars'!r}).getBBox().height > 1"
        chromium.until(driver, tall)
    chromium.shows(driver, "of 1,204 rows break the contract, at most 10% may")
    [link, *_] = driver.find_elements("css selector", "#check-rows a")
    assert link.get_attribute("href").endswith(f"/q/reports/{ID}")
    assert chromium.violations(driver) == []


def test_a_version_more_is_seen_without_loading_the_page_again(driver, web):
    at(driver, web, "/tables/reports/hits")
    driver.execute_script("window.seen = true")
    now = time.time()
    delta_showcase.append(web.root, HITS, 7, [ID], now)
    delta_showcase.expect(web.root, HITS, 299, [ID], now)
    chromium.shows(driver, "299 of 1,204 rows break")
    newest = "#version-rows tr:first-child"
    chromium.shows(driver, "28", newest)
    chromium.shows(driver, "7", newest)
    assert driver.execute_script("return window.seen")
