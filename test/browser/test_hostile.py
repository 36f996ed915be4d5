"""Texts that strangers choose stay texts: no script, no dialog, no breach of the policy."""

from __future__ import annotations

import json

import pytest
from harness import chromium
from harness.waiting import wait_until

CORPUS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"><svg onload=alert(3)>',
    "'-alert(4)-'",
    "javascript:alert(5)",
    "</textarea><script>alert(6)</script>",
    "</title></style><script>alert(7)</script>",
    "{{ 7*7 }}{% raw %}<b>8</b>",
    "<a href='javascript:alert(9)'>x</a>",
    "<iframe srcdoc='<script>parent.alert(10)</script>'></iframe>",
    "\u202e<script>alert(11)</script>",
    "<style>*{display:none}</style>",
    "<base href=//evil.example>",
    "<form action=//evil.example><input type=submit>",
    "<!--<script>alert(12)//-->",
    "&lt;script&gt;alert(13)",
)
ALL = " ".join(CORPUS)
SAYS = """#!/bin/sh
cat "$RQ_PARAM2"
printf '\\033]8;;javascript:alert(20)\\033\\\\link\\033]8;;\\033\\\\\\n'
printf '\\033]0;<script>alert(21)</script>\\007\\n'
printf '\\033[31m<img src=x onerror=alert(22)>\\033[0m\\n'
printf "run %s\\n" "$RQ_PARAM1" >&3
[ "$RQ_PARAM3" = hold ] && sleep 60
printf "err %s\\n" "$RQ_PARAM1" >&3
"""


@pytest.fixture(scope="module")
def hostile(stage, tmp_path_factory):
    """Give ids of messages whose every text is hostile: failed, running, prepared."""
    words = tmp_path_factory.mktemp("words") / "words"
    words.write_text("\n".join(CORPUS) + "\n")
    stage.queue("hostile", SAYS, workers=2)
    fields = {
        "param2": str(words),
        "param4": json.loads(json.dumps({ALL: [ALL]})),
        "src": ALL,
        "extra<script>alert(30)</script>": ALL,
    }
    failed = stage.send("hostile", ALL, **fields)
    running = stage.send("hostile", ALL, param3="hold", **fields)
    wait_until(lambda: stage.state("hostile", failed) == "err")
    form = {"mesg_param1": {"label": ALL, "help": ALL}, "mesg_status": {"label": ALL}}
    definition = stage.daemon.root.path / "definitions/hostile"
    (definition / "form.json").write_text(json.dumps(form))
    made = stage.daemon.root.queue("hostile").form
    wait_until(made.exists)
    key = {"key": ALL[:200]}
    txn = stage.daemon.ask_queue("hostile", "open_txn", key)[1]["txn"]
    broken = stage.daemon.root.timers / "<img src=x onerror=alert(40)>.json"
    broken.write_text("{")
    return {"failed": failed, "running": running, "txn": txn}


PAGES = (
    "/",
    "/?find={all}&sort={all}",
    "/q/hostile",
    "/q/hostile?find={all}&state={all}&after={all}",
    "/q/hostile?state=err&find=script",
    "/q/hostile/{failed}",
    "/q/hostile/{failed}/log",
    "/q/hostile/{failed}/log?find={all}",
    "/q/hostile/{failed}/confirm/retry",
    "/q/hostile/{running}",
    "/q/hostile/{running}/log",
    "/q/hostile/new_message",
    "/q/hostile/new_message?param1={all}",
    "/q/{all}",
    "/q/hostile/{all}",
    "/q/hostile/confirm/{all}",
    "/q/hostile/txn",
    "/q/hostile/txn/{txn}",
    "/q/hostile/txn/{txn}/confirm/abort",
    "/q/hostile/txn/{all}",
    "/timers",
    "/system",
)


@pytest.mark.parametrize("path", PAGES)
def test_a_hostile_text_stays_text(stage, hostile, path):
    from urllib.parse import quote

    driver = stage.driver
    address = path.format(all=quote(ALL, safe=""), **hostile)
    driver.get(stage.url(address))
    driver.execute_script(
        "document.dispatchEvent(new CustomEvent('rq:refresh'))"  # and once more, live
    )
    chromium.until(driver, "document.readyState === 'complete'")
    if address.endswith("/log") or "/log?" in address:
        chromium.shows(driver, "<img src=x onerror=alert(22)>", "#log")
    assert driver.find_elements("css selector", "main script, main iframe, base") == []
    assert driver.find_elements("css selector", "[onerror], [onload]") == []
    told = [one for one in chromium.violations(driver) if "status of 4" not in one]
    assert told == []


@pytest.mark.slow
def test_an_attachment_with_a_page_in_it_is_never_shown_as_one(stage, hostile):
    source = stage.daemon.root.path / "page.html"
    source.write_text("<script>alert(50)</script>")
    owner = stage.daemon.ask_queue
    prepared = owner("hostile", "prep_message", {"dest": "hostile"})[1]
    msg_id = prepared.rpartition("/")[2]
    asked = {"msg_id": msg_id, "pathname": str(source), "name": "a b@(page).html"}
    assert owner("hostile", "attach_message", asked)[0] == "ok"
    stage.open(f"/q/hostile/{msg_id}")
    chromium.shows(stage.driver, "a b@(page).html")
    link = stage.driver.find_element("css selector", "td a[href*=attach]")
    stage.driver.get(link.get_attribute("href"))
    stage.clean()
    stage.driver.get(stage.url(f"/q/hostile/{msg_id}/tailview/a%20b@(page).html"))
    chromium.shows(stage.driver, "<script>alert(50)</script>", "pre")
    stage.clean()
