"""Readers without a mouse, without colours, without a screen."""

from __future__ import annotations

import pytest
from harness import chromium, delta_showcase, history_showcase, showcase
from harness.ports import free_port
from harness.supervisor import daemon_on


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Give a browser, the address and the ids of a root with something on each page."""
    chromium.need()
    port = free_port()
    path = tmp_path_factory.mktemp("root")
    with daemon_on(path / "rq") as daemon, chromium.browser() as driver:
        showcase.build(daemon, port)
        daemon.start()
        ids = showcase.fill(daemon)
        history_showcase.publish_weeks(daemon.root)
        delta_showcase.write_week(daemon.root, [ids["march"], ids["april"]])
        daemon.until_up("web")
        yield driver, f"http://127.0.0.1:{port}", ids


SCREENS = {
    "overview": "/",
    "queue": "/q/reports",
    "queue running": "/q/video-encode",
    "tab": "/q/newsletter?state=que",
    "workers elsewhere": "/q/render",
    "worked on elsewhere": "/q/render/{leased}",
    "failed": "/q/reports/{march}",
    "running": "/q/video-encode/{running}",
    "prepared": "/q/reports/{prep}",
    "log": "/q/video-encode/{running}/log",
    "confirm": "/q/video-encode/{running}/confirm/cancel",
    "relay": "/relay",
    "transactions": "/q/partner-sync/txn",
    "transaction": "/q/partner-sync/txn/{txn}",
    "queue with a transaction": "/q/partner-sync",
    "message of a transaction": "/q/partner-sync/{held}",
    "no such id": "/?find=20200101.0000.00.000.1",
    "history": "/history",
    "tables": "/tables",
    "table": "/tables/reports/hits",
    "history of a queue": "/q/thumbnails/history?range=day",
    "runs": "/runs?since=2d",
    "failures": "/failures",
    "search": "/search?words=report",
    "a sorted list": "/q/reports?state=err&sort=-ran",
    "many messages": "/q/reports/bulk?state=err&action=retry",
    "timers": "/timers",
    "timer": "/timers/hourly-report",
    "system": "/system",
    "new message": "/q/video-encode/new_message",
    "edit": "/q/reports/{march}/edit",
    "new queue": "/new_queue",
    "not found": "/q/nowhere",
}


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious(shown, axe, screen):
    driver, base, ids = shown
    driver.get(base + SCREENS[screen].format(**ids))
    chromium.until(driver, "!document.getElementById('help').hidden")
    assert chromium.unfit_for_readers(driver, axe) == {}


@pytest.mark.slow
def test_axe_finds_nothing_serious_on_what_failed_alike_and_before_it_is_retried(
    shown, axe
):
    driver, base, _ = shown
    driver.get(f"{base}/failures")
    for page in ("#failure-rows th a", ".deeds button", "#choice"):
        chromium.until(driver, f"document.querySelector({page!r})")
        assert chromium.unfit_for_readers(driver, axe) == {}, page
        if page != "#choice":
            chromium.click(driver, page)
    assert chromium.text(driver, "#choice h2").startswith("Retry:")


def test_a_reader_with_only_a_keyboard_finds_opens_and_cancels(shown):
    from selenium.webdriver.common.keys import Keys

    driver, base, ids = shown
    chromium.size(driver, chromium.WIDE)
    driver.get(base + "/")
    chromium.until(driver, "!document.getElementById('help').hidden")
    press(driver, "?")
    chromium.until(driver, "document.querySelector('dialog[open]')")
    press(driver, Keys.ESCAPE)
    chromium.until(driver, "!document.querySelector('dialog[open]')")
    press(driver, "/", "reports", Keys.ENTER)
    chromium.until(driver, "location.search.includes('reports')")
    chromium.until(driver, "!document.getElementById('help').hidden")
    press(driver, "j", Keys.ENTER)
    chromium.until(driver, "location.pathname === '/q/reports'")
    driver.get(f"{base}/q/video-encode/{ids['running']}")
    chromium.until(driver, "!document.getElementById('help').hidden")
    press(driver, "c")
    chromium.until(driver, "document.querySelector('dialog[open]')")
    press(driver, Keys.ENTER)
    chromium.shows(driver, "It was cancelled", "#story")
    press(driver, "g", "t")
    chromium.until(driver, "location.pathname === '/timers'")


def test_after_escape_the_focus_is_where_it_was_though_the_row_was_made_again(shown):
    from selenium.webdriver.common.keys import Keys

    driver, base, ids = shown
    driver.get(base + "/q/reports")
    chromium.until(driver, "!document.getElementById('help').hidden")
    row = f"m-{ids['march']}"
    driver.execute_script(
        "document.getElementById(arguments[0]).querySelector('form button').click()",
        row,
    )
    chromium.until(driver, "document.querySelector('dialog[open]')")
    driver.execute_script(
        "const row = document.getElementById(arguments[0]);"
        "row.replaceWith(row.cloneNode(true))",
        row,
    )
    press(driver, Keys.ESCAPE)
    chromium.until(driver, "!document.querySelector('dialog[open]')")
    inside = "return document.activeElement.closest('tr')?.id"
    assert driver.execute_script(inside) == row
    assert driver.switch_to.active_element.tag_name == "button"


def test_rows_are_chosen_all_at_once(shown):
    driver, base, _ = shown
    driver.get(base + "/q/reports?state=err")
    chromium.until(driver, "!document.querySelector('[data-all]').hidden")
    boxes = driver.find_elements("css selector", "input[name=ids]")
    driver.find_element("css selector", "[data-all]").click()
    assert boxes
    assert all(box.is_selected() for box in boxes)
    driver.execute_script("document.querySelector('#picked button').click()")
    chromium.until(driver, "location.pathname === '/q/reports/bulk'")
    assert driver.current_url.count("ids=") == len(boxes)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_place_and_no_chosen_tab_is_cut(shown, width):
    driver, base, _ = shown
    chromium.size(driver, width)
    driver.get(base + "/q/reports?state=relayed")
    chromium.until(driver, "!document.getElementById('theme').hidden")
    inside = """
        const boxes = [...document.querySelectorAll('.nav a, .tabs [aria-current]')];
        return boxes.every((box) => {
            const { left, right } = box.getBoundingClientRect();
            return left >= 0 && right <= innerWidth;
        });"""
    assert driver.execute_script(inside)
    chromium.size(driver, chromium.WIDE)


@pytest.mark.slow
def test_what_has_the_focus_is_seen(shown):
    from selenium.webdriver.common.keys import Keys

    driver, base, _ = shown
    driver.get(base + "/")
    chromium.until(driver, "!document.getElementById('help').hidden")
    for _ in range(12):
        press(driver, Keys.TAB)
        style = driver.execute_script(
            "return getComputedStyle(document.activeElement).outlineStyle"
        )
        assert style != "none"


def press(driver, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()
