"""What an operator does in a browser, from sending to acknowledging."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from harness import chromium, showcase
from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.outbound import permits

COLOURS = r"""#!/bin/sh
printf '\033[1;32mgreen and bold\033[0m plain\n'
printf 'one\rtwo\n'
for n in 1 2 3; do echo "line $n"; echo "run step $n of 3" >&3; sleep 0.3; done
case $RQ_PARAM1 in
fail) echo 'err as I was told' >&3 ;;
wait) while [ ! -e "$RQ_PARAM2" ]; do sleep 0.05; done; echo 'done at last' >&3 ;;
*) echo 'done well' >&3 ;;
esac
"""
AGAIN = """#!/bin/sh
echo "attempt with count $RQ_COUNT"
[ "$RQ_COUNT" -eq 0 ] && sleep 0.3 && echo 'resend 0-once more' >&3 && exit 0
echo 'done the second time' >&3
"""


@pytest.mark.slow
def test_a_message_is_sent_by_the_form_and_its_coloured_log_is_watched_live(stage):
    stage.queue("colours", COLOURS, workers=2)
    driver = stage.driver
    stage.open("/q/colours")
    chromium.click(driver, "a.btn.primary")
    chromium.shows(driver, "New message to colours", "h1")
    driver.find_element("id", "mesg_param1").send_keys("hello")
    chromium.click(driver, "#new-message button[type=submit]")
    chromium.click(driver, "#messages tr[data-row] a")
    chromium.click(driver, "a[data-key=l]")
    chromium.shows(driver, "line 3", "#log")
    green = "document.querySelector('#log .fg-2.ansi-b')?.textContent"
    assert driver.execute_script(f"return {green}") == "green and bold"
    lines = "[...document.querySelectorAll('#log .line')].map((one) => one.textContent)"
    assert "two" in driver.execute_script(f"return {lines}")
    chromium.shows(driver, "exited with 0: well", "#log-end")
    chromium.shows(driver, "done", "#badge")
    stage.clean()


def test_an_edit_changes_what_was_edited_and_nothing_else(stage):
    stage.queue("odd", "#!/bin/sh\necho err >&3\n")
    kept = {"param1": "\n first\rsecond\r\nthird\n", "src": "two\nlines"}
    odd = stage.send("odd", param2="before", **kept)
    wait_until(lambda: stage.state("odd", odd) == "err")
    driver = stage.driver
    stage.open(f"/q/odd/{odd}/edit")
    param2 = driver.find_element("id", "mesg_param2")
    param2.clear()
    param2.send_keys("after")
    chromium.click(driver, "#new-message button[type=submit]")
    chromium.until(driver, f"!location.pathname.includes({odd!r})")
    new = driver.current_url.rpartition("/")[2]
    driver.get(stage.url(f"/q/odd/{new}.json"))
    view = json.loads(driver.find_element("tag name", "body").text)
    assert view["param2"] == "after"
    assert {name: view[name] for name in kept} == kept
    stage.clean()


@pytest.mark.slow
def test_a_message_is_sent_for_later_and_a_wrong_time_loses_nothing(stage):
    stage.queue("later", COLOURS)
    driver = stage.driver
    stage.open("/q/later/new_message")
    driver.find_element("id", "mesg_param1").send_keys("<b>a long text")
    driver.find_element("id", "mesg_due").send_keys("soon")
    chromium.click(driver, "#new-message button[type=submit]")
    chromium.shows(driver, "Not sent: not a time: 'soon'", "#refused")
    param1 = driver.find_element("id", "mesg_param1")
    assert param1.get_attribute("value") == "<b>a long text"
    due = driver.find_element("id", "mesg_due")
    due.clear()
    due.send_keys("+2h")
    chromium.click(driver, "#new-message button[type=submit]")
    chromium.shows(driver, "due in 1 h 59 min", "#messages")
    told = [one for one in chromium.violations(driver) if "status of 422" not in one]
    assert told == []


@pytest.mark.slow
def test_a_transaction_that_nobody_commits_is_seen_and_aborted(stage):
    stage.queue("together", COLOURS)
    driver, ask = stage.driver, stage.daemon.ask_queue
    txn = ask("together", "open_txn", {"key": "orders"})[1]["txn"]
    ask("together", "prepare_txn", {"txn": txn, "messages": [{"param1": "one"}]})
    stage.open("/q/together")
    chromium.shows(driver, "orders", "#txns")
    chromium.click(driver, "#txns tr[data-row] a")
    chromium.shows(driver, "with 1 prepared message", "#story")
    chromium.confirm(driver, "#txn-actions button")
    chromium.shows(driver, "It was aborted", "#story")
    stage.open("/q/together/txn")
    chromium.shows(driver, "No transaction is open", "#open")
    chromium.shows(driver, "aborted", "#decided")
    assert ask("together", "num_messages")["prep"] == 0
    stage.clean()


@pytest.mark.slow
def test_workers_elsewhere_are_watched_as_they_come_and_work(stage):
    directory = stage.daemon.define("away", {"num_workers": 0, "pull": {}})
    stage.daemon.link("away", directory)
    stage.daemon.until_up("away")
    driver, hostile = stage.driver, "<img src=x onerror=alert(1)>"

    def ask(word, **said):
        return stage.daemon.ask_queue("away", word, said)[1]

    stage.open("/q/away")
    chromium.shows(driver, "no worker elsewhere has asked since", "#workers")
    msg_id = stage.send("away", "one")
    chromium.shows(driver, "No worker elsewhere has asked for messages", "#messages")
    [lease] = ask("lease", label=hostile, seconds=600, slots=3)["leases"]
    chromium.shows(driver, hostile, "#workers-list")
    chromium.shows(driver, "1 message at work elsewhere", "#queue-head")
    ask("progress", token=lease["token"], text="half of it", fraction=0.5)
    chromium.shows(driver, "half of it", "#messages")
    stage.open("/")
    chromium.shows(driver, hostile, "#running")
    chromium.shows(driver, "1 worker elsewhere, heard of", "#queues")
    stage.open(f"/q/away/{msg_id}")
    chromium.shows(driver, f"{hostile} has had it for", "#story")
    ask("finish", finishes=[{"token": lease["token"], "word": "done"}])
    chromium.shows(driver, "It succeeded in attempt 1", "#story")
    stage.clean()


@pytest.mark.slow
def test_a_failure_is_explained_retried_and_acknowledged(stage):
    stage.queue("failing", COLOURS)
    driver = stage.driver
    msg_id = stage.send("failing", "fail")
    stage.open("/")
    chromium.shows(driver, "failing", "#queue-rows")
    stage.open(f"/q/failing/{msg_id}")
    chromium.shows(driver, "The script reported err: as I was told", "#story")
    chromium.confirm(driver, "#message-actions [action$='confirm/retry'] button")
    chromium.shows(driver, "attempt 2", "#story")
    chromium.shows(driver, "It failed in attempt 2", "#story")
    chromium.confirm(driver, "#message-actions [action$='confirm/ack'] button")
    chromium.shows(driver, "acknowledged", "#badge")
    stage.open("/q/failing?state=errack")
    chromium.shows(driver, msg_id[9:20], "#messages")
    stage.clean()


@pytest.mark.slow
def test_a_running_message_is_cancelled_beside_its_log(stage):
    stage.queue("cancelled", "#!/bin/sh\necho begun\nsleep 100\n")
    msg_id = stage.send("cancelled")
    stage.open(f"/q/cancelled/{msg_id}/log")
    chromium.shows(stage.driver, "begun", "#log")
    chromium.confirm(stage.driver, "#log-actions button")
    chromium.shows(stage.driver, "It was cancelled", "#log-end")
    assert stage.state("cancelled", msg_id) == "err"
    stage.clean()


def test_the_log_follows_a_message_into_its_next_attempt_and_after_its_end(stage):
    stage.queue("again", AGAIN)
    driver = stage.driver
    msg_id = stage.send("again")
    stage.open(f"/q/again/{msg_id}/log")
    chromium.shows(driver, "attempt with count 0", "#log")
    chromium.shows(driver, "attempt with count 1", "#log")
    chromium.shows(driver, "It succeeded in attempt 2", "#log-end")
    stage.clean()


@pytest.mark.slow
def test_a_queue_is_paused_and_resumed(stage):
    stage.queue("paused", COLOURS)
    driver = stage.driver
    stage.open("/")
    chromium.confirm(driver, "tr[data-name=paused] button")
    chromium.shows(driver, "PAUSE", "tr[data-name=paused]")
    msg_id = stage.send("paused")
    stage.open(f"/q/paused/{msg_id}")
    chromium.shows(driver, "The queue is paused", "#story")
    stage.open("/")
    chromium.click(driver, "tr[data-name=paused] button")
    chromium.shows(driver, "UP", "tr[data-name=paused]")
    wait_until(lambda: stage.state("paused", msg_id) == "done")
    stage.clean()


@pytest.mark.slow
def test_numbers_come_fresh_and_rows_stay_under_the_pointer(stage):
    stage.queue("fresh", "#!/bin/sh\necho done >&3\n")
    driver = stage.driver
    first = stage.send("fresh")
    stage.open("/q/fresh?state=done")
    chromium.shows(driver, first[9:20], "#messages")
    row = driver.find_element("id", f"m-{first}")
    hover(driver, row)
    second = stage.send("fresh")
    chromium.shows(driver, "Done 2", "#tabs")
    assert not driver.find_elements("id", f"m-{second}")
    hover(driver, driver.find_element("tag name", "h1"))
    chromium.until(driver, f"document.getElementById('m-{second}')")
    assert driver.find_element("id", f"m-{first}") == row
    stage.clean()


@pytest.mark.slow
def test_what_is_on_its_way_elsewhere_is_seen_and_tried_again(stage):
    driver, daemon = stage.driver, stage.daemon
    permits.allow(daemon.root, ["127.0.0.1"])
    daemon.link("relay", CHECKOUT / "rq/bundled/relay")
    daemon.until_up("relay")
    stage.open("/relay")
    chromium.shows(driver, "Nothing is on its way", "#transfers")
    msg_id = stage.send("relay", dest="http://127.0.0.1:1/q/x")  # nobody listens there
    chromium.shows(driver, "Connection refused", "#transfers")
    chromium.shows(driver, "http://127.0.0.1:1", "#peers")
    chromium.confirm(driver, f"[id='t-{msg_id}'] form[action$='confirm/retry'] button")
    chromium.until(driver, "document.querySelector('[id^=flash-]')")
    stage.clean()


def hover(driver, element):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).move_to_element(element).perform()


@pytest.mark.slow
def test_everything_is_there_without_scripts(stage):
    stage.queue("plain", COLOURS)
    driver = stage.driver
    msg_id = stage.send("plain", "fail")
    wait_until(lambda: stage.state("plain", msg_id) == "err")
    with chromium.without_scripts(driver):
        driver.get(stage.url(f"/q/plain/{msg_id}/log"))
        assert "green and bold plain" in driver.find_element("css selector", "pre").text
        driver.get(stage.url(f"/q/plain/{msg_id}"))
        driver.find_element(
            "css selector", "#message-actions [action$='confirm/retry'] button"
        ).click()
        wait_until(lambda: "Run this message again?" in driver.page_source)
        driver.find_element("css selector", "form[method=post] button").click()
        wait_until(lambda: "flash-notice" in driver.page_source)
        assert msg_id in driver.current_url
        assert "will run again" in chromium.text(driver, "#flash-notice")


def test_the_reader_chooses_light_or_dark_and_it_stays(stage):
    chromium.theme(stage.driver, "light")
    stage.open("/")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = stage.driver.execute_script(f"return {ground}")
    stage.driver.find_element("id", "theme").click()
    dark = stage.driver.execute_script(f"return {ground}")
    assert dark != light
    stage.open("/timers")
    assert stage.driver.execute_script(f"return {ground}") == dark
    stage.driver.find_element("id", "theme").click()
    stage.clean()


@pytest.fixture
def empty(tmp_path):
    """Give a browser and a root without any queue."""
    chromium.need()
    port = free_port()
    with daemon_on(tmp_path / "rq") as daemon, chromium.browser() as driver:
        showcase.configure(daemon, port)
        daemon.start()
        daemon.until_up("web")
        driver.get(f"http://127.0.0.1:{port}/")
        yield driver, daemon


@pytest.mark.slow
def test_the_three_commands_of_an_empty_overview_do_what_it_says(empty):
    driver, daemon = empty
    shown = driver.find_elements("css selector", ".empty .command code")
    make, send, follow = (one.text.removeprefix("$ ") for one in shown)
    # The queue is there within a moment of its link.
    text = "\n".join([make, "until rq queue ls | grep -q UP; do sleep 0.1; done"])
    text += "\n" + "\n".join([send, follow])
    rq = f'rq() {{ "{sys.executable}" -m rq.cli "$@"; }}\n'
    words = rq + text.replace("./bin/rq", "rq")
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "RQ_ROOT": str(daemon.root.path)}
    done = subprocess.run(
        ["sh", "-euc", words],
        check=False,
        cwd=daemon.root.path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Hello, world" in done.stdout, done.stderr
    chromium.shows(driver, "hello", "#queue-list")
    assert chromium.violations(driver) == []
