"""What pages say is so: at each width nothing hides what needs a person, keys mean what
is chosen, and a page whose server has gone says that it is old."""

from __future__ import annotations

import signal

import pytest
from harness import chromium
from harness.waiting import wait_until

SCRIPT = """#!/bin/sh
echo "err the service at https://example.org/api/v2/reports answered 503 after 30 s" >&3
"""
LONGEST = "a_legal_name_" * 9 + "0123456789x"
LONG_PARAM = "https://example.org/a/rather/long/path/to/a/report/2026/monthly.csv"


@pytest.fixture(scope="module")
def failed(stage):
    """Give a queue with the longest name, and two messages in it that failed."""
    assert len(LONGEST) == 128
    stage.queue(LONGEST, SCRIPT)
    ids = [stage.send(LONGEST, "bad", param2=LONG_PARAM) for _ in range(2)]
    for one in ids:
        wait_until(lambda one=one: stage.state(LONGEST, one) == "err")
    return ids


def overflow(driver, selector):
    """Return by how many pixels an element's content is wider than what shows it."""
    part = f"document.querySelector({selector!r})"
    return driver.execute_script(f"return {part}.scrollWidth - {part}.clientWidth")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 800, 1024, 1210, 1280, 1440, 1510, 1920])
def test_no_name_and_no_reason_hides_a_column(stage, failed, width):
    driver = stage.driver
    chromium.size(driver, width)
    try:
        stage.open("/")
        chromium.until(driver, "document.querySelector('#queue-rows tr')")
        assert overflow(driver, "html") == 0
        assert overflow(driver, ".table-box") == 0
        stage.open(f"/q/{LONGEST}")
        chromium.until(driver, "document.querySelector('td.says')")
        assert overflow(driver, "html") == 0
        assert overflow(driver, ".table-box") == 0
        said = "document.querySelector('td.says').offsetWidth"
        assert driver.execute_script(f"return {said}") >= 190
        for state in ("err", "done"):
            stage.open(f"/q/{LONGEST}?state={state}")
            assert overflow(driver, ".table-box") == 0
    finally:
        chromium.size(driver, chromium.WIDE)
    stage.clean()


TOP = "document.querySelector('#queue-rows tr').getBoundingClientRect().bottom"
TALL = "[...document.querySelectorAll('.tile')].map((tile) => tile.offsetHeight)"
PLACES = (
    "[...document.querySelectorAll('.nav a')].map((a) => a.getBoundingClientRect())"
)
CHOSEN = "document.querySelector('.tabs [aria-current]').getBoundingClientRect()"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_shows_queues_and_on_a_phone_messages_before_charts(
    stage, failed, width, height
):
    driver = stage.driver
    chromium.size(driver, width, height)
    try:
        stage.open("/")
        chromium.until(driver, "document.querySelector('#queue-rows tr')")
        assert driver.execute_script(f"return {TOP}") < height
        assert max(driver.execute_script(f"return {TALL}")) < 110
        stage.open(f"/q/{LONGEST}?state=err")
        order = (
            "(a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top"
        )
        parts = "document.querySelector('#messages'), document.querySelector('#charts')"
        below = driver.execute_script(f"return ({order})({parts})")
        assert (below < 0) is (width == 390)  # on a phone rows come before charts
    finally:
        chromium.size(driver, chromium.WIDE)
    stage.clean()


LONG_FIELD = "x_" + "a_field_of_a_program_" * 12


@pytest.mark.parametrize("width", [390, 1400])
def test_no_field_and_no_reason_hides_a_fact(stage, width):
    driver = stage.driver
    if stage.daemon.root.queue("wordy").path.is_dir() is False:
        stage.queue("wordy", f"#!/bin/sh\necho 'err {'w' * 400}' >&3\n")
    wordy = stage.send("wordy", **{LONG_FIELD: "v" * 9000, "x_" + "n" * 9000: 1})
    wait_until(lambda: stage.state("wordy", wordy) == "err")
    chromium.size(driver, width)
    try:
        stage.open(f"/q/wordy/{wordy}")
        assert overflow(driver, "html") == 0
        widths = (
            "[...document.querySelectorAll('#facts dd')].map((dd) => dd.offsetWidth)"
        )
        assert min(driver.execute_script(f"return {widths}")) >= 90
        chromium.shows(driver, "vvv … 4,904 more characters, in the JSON", "#facts")
        stage.open(f"/q/wordy/{wordy}/log")
        chromium.shows(driver, "It failed", "#log-end")
        assert overflow(driver, "html") == 0
    finally:
        chromium.size(driver, chromium.WIDE)
    stage.clean()


RUNNING = "r" * 128
WORKS = "#!/bin/sh\nsleep 600\n"


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_name_hides_nothing_of_what_runs(stage, width):
    driver = stage.driver
    if stage.daemon.root.queue(RUNNING).path.is_dir() is False:
        stage.queue(RUNNING, WORKS)
        stage.send(RUNNING, "one")
    chromium.size(driver, width)
    try:
        stage.open("/")
        chromium.until(driver, "document.querySelector('#running td')")
        assert overflow(driver, "#running .table-box") == 0
    finally:
        chromium.size(driver, chromium.WIDE)
    stage.clean()


def press(driver, keys):
    driver.find_element("tag name", "body").send_keys(keys)


def test_a_key_acts_on_the_chosen_row_and_not_on_all(stage, failed):
    driver = stage.driver
    stage.open(f"/q/{LONGEST}?state=err")
    press(driver, "j")
    chromium.until(driver, "document.querySelector('tr.at')")
    chosen = driver.find_element("css selector", "tr.at").get_attribute("id")
    press(driver, "a")
    chromium.until(driver, "document.querySelector('dialog[open] form')")
    action = driver.find_element("css selector", "dialog[open] form").get_attribute(
        "action"
    )
    assert action.endswith(f"/q/{LONGEST}/{chosen.removeprefix('m-')}")
    driver.find_element("css selector", "dialog[open] [data-close]").click()
    chromium.until(driver, "!document.querySelector('dialog[open]')")
    stage.open(f"/q/{LONGEST}?state=err")
    press(driver, "a")  # nothing is chosen: the page is about the queue
    chromium.until(driver, "document.querySelector('dialog[open] form')")
    action = driver.find_element("css selector", "dialog[open] form").get_attribute(
        "action"
    )
    assert action.endswith(f"/q/{LONGEST}/ack_errs")
    driver.find_element("css selector", "dialog[open] [data-close]").click()
    assert all(stage.state(LONGEST, one) == "err" for one in failed)
    stage.clean()


@pytest.mark.slow
def test_a_page_whose_server_is_gone_says_how_old_it_is(stage):
    driver, daemon = stage.driver, stage.daemon
    dot = (
        "getComputedStyle(document.getElementById('live'), '::before').backgroundColor"
    )
    stage.open("/")
    chromium.shows(driver, "live", "#live")
    fresh = driver.execute_script(f"return {dot}")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(30) == 0
    chromium.shows(driver, "no answer", "#live")
    assert driver.execute_script(f"return {dot}") != fresh
    chromium.size(driver, chromium.NARROW)  # where there is room for a dot only
    try:
        told = "getComputedStyle(document.getElementById('live')).fontSize"
        assert driver.execute_script(f"return parseFloat({told})") >= 12
        part = "document.getElementById('live').getBoundingClientRect()"
        assert driver.execute_script(f"return {part}.right <= 390 && {part}.left >= 0")
        assert overflow(driver, "html") == 0
    finally:
        chromium.size(driver, chromium.WIDE)
    daemon.start()
    daemon.until_up("web")
    chromium.shows(driver, "live", "#live", 120)
    chromium.until(driver, f"{dot} === '{fresh}'")
    driver.get_log("browser")  # that nobody answered is in there
