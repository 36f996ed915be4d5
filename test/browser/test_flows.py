"""The page of a flow: its graph follows what happens, at each width, for all readers."""

from __future__ import annotations

import json

import pytest
from harness import chromium
from harness.checkout import CHECKOUT
from harness.cli import rq

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
GO = 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done'
SCRIPT = f"""#!/bin/sh
[ "$RQ_PARAM1" = waits ] && {GO}
[ "$RQ_PARAM1" = fails ] && [ ! -e "$RQ_ROOT/mended" ] && echo err no luck >&3 && exit
echo done >&3
"""
EVIL = "<img src=x onerror=alert(1)>"


def node(name, *after, **fields):
    return {"name": name, "dest": "work", "after": list(after), **fields}


@pytest.fixture(scope="module")
def flow(stage, tmp_path_factory):
    """A flow of which a message runs until it is let go, and one fails."""
    stage.daemon.link("flow", CHECKOUT / "rq/bundled/flow")
    stage.queue("work", SCRIPT, workers=4)
    stage.daemon.until_up("flow")
    messages = [
        node("fetch"),
        node("runs", "fetch", param1="waits"),
        node("fails", "fetch", param1="fails"),
        *(node(f"part-{n}", "fetch", "runs") for n in range(30)),
        node("last", *(f"part-{n}" for n in range(30)), "fails"),
    ]
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    file.write_text(json.dumps({"messages": messages, "name": EVIL}))
    sent = rq("flow", "run", file, "--id-only", root=stage.daemon.root.path)
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.strip()


@pytest.mark.slow
def test_axe_finds_nothing_serious_and_nothing_stands_out(stage, flow, axe):
    for theme in ("light", "dark"):
        chromium.theme(stage.driver, theme)
        for width in (chromium.NARROW, chromium.WIDE):
            chromium.size(stage.driver, width)
            for path in ("/flows", f"/flows/{flow}", f"/flows/{flow}/confirm/rerun"):
                stage.open(path)
                assert chromium.unfit_for_readers(stage.driver, axe) == {}, path
                assert stage.driver.execute_script(f"return {SIDEWAYS}") == 0, path
    stage.clean()


def test_the_graph_follows_what_happens(stage, flow):
    driver = stage.driver
    stage.open("/flows")
    chromium.shows(driver, EVIL, "#flow-rows")
    chromium.click(driver, "#flow-rows a")
    chromium.shows(driver, "1 failed", "#flow-key")
    chromium.shows(driver, "no luck", "#node-rows")
    assert len(driver.find_elements("css selector", "#graph .box")) == 5
    (stage.daemon.root.path / "go").touch()
    chromium.shows(driver, "32 done", "#flow-key")
    (stage.daemon.root.path / "mended").touch()
    chromium.confirm(driver, "#flow-actions button.primary")
    chromium.shows(driver, "all of its 34 messages are done", "#sums")
    assert len(driver.find_elements("css selector", "#graph .box.done")) == 5
    stage.clean()
