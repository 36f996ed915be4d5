"""Pages of a queue whose process does not answer: shown, with what is known."""

from __future__ import annotations

import pytest
from harness.web_server import BROWSER, web_alone

from rq.config import files
from rq.layout import Root

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    path = tmp_path_factory.mktemp("silent")
    made = {"name": "mute", "script": "/bin/true"}
    files.make_queue(Root(path).queue("mute"), made, {})
    with web_alone(path) as found:
        yield found


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/overview.json",
        "/q/mute",
        "/q/mute?state=err",
        "/q/mute/queue.json",
        "/q/mute/new_message",
        "/q/mute/confirm/restart",
        "/system",
        "/timers",
        "/relay",
        "/relay.json",
    ],
)
def test_a_page_is_shown_though_nobody_answers_for_the_queue(web, path):
    assert web.get(path, Accept=BROWSER).status == 200


def test_a_message_of_a_silent_queue_is_no_error_of_the_web(web):
    for rest in ("", ".json", "/log", "/state.json"):
        found = web.get(f"/q/mute/20260102.0304.05.006.7{rest}", Accept=BROWSER)
        assert found.status in (404, 503), rest
