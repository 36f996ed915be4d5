"""What cannot be seen, or turns letters round, is seen on every page."""

import json
import logging
import re
from urllib.parse import quote

import pytest
from harness import web_server
from harness.waiting import wait_until

from rq import logs
from rq.rpc.broker.addresses import address_of

pytestmark = pytest.mark.process

MARKS = "\u202e\u2066\u200b\ufeff\u061c\U000e0041\x9b\u3164"
NAME = f"gpj{MARKS}.exe"
HIDDEN = re.compile(f"[{MARKS}]")
# Values that a form sends back stay what they are: a browser shows them in their field.
FIELDS = re.compile(r'value="[^"]*"|<textarea[^>]*>[^<]*</textarea>')
SAYS = 'printf "$RQ_PARAM1\\n"; printf "err %s\\n" "$RQ_PARAM1" >&3; exit 1'


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Give a web, and what is hidden in it: a failed message, a timer, a form."""
    with web_server.served(tmp_path_factory.mktemp("root") / "rq") as served:
        form = {"mesg_param1": {"label": NAME, "help": NAME}}
        name = served.queue(SAYS, "hidden")
        served.daemon.root.queue(name).form.write_text(json.dumps(form))
        (served.daemon.root.timers / f"{NAME}.json").write_text("{")
        fields = {"param1": NAME, "param2": {NAME: [NAME]}, "src": NAME, NAME: NAME}
        failed = served.send(name, **fields)
        waiting = served.send(name, **fields, due=4_000_000_000)
        served.daemon.ask_queue(name, "open_txn", {"key": NAME})
        wait_until(lambda: served.state(name, failed) == "err")
        yield served, failed, waiting


PAGES = (
    "/",
    "/?find=%E2%80%AE",
    "/search?words={name}",
    "/runs?queue={name}",
    "/failures?queue={name}",
    "/q/hidden",
    "/q/hidden?state=err",
    "/q/hidden?find={name}",
    "/q/hidden/{failed}",
    "/q/hidden/{failed}/log",
    "/q/hidden/{failed}/log?find={name}",
    "/q/hidden/{failed}/edit",
    "/q/hidden/{failed}/confirm/retry",
    "/q/hidden/{waiting}",
    "/q/hidden/new_message?param1={name}",
    "/q/hidden/txn",
    "/q/hidden/{name}",
    "/q/{name}",
    "/timers",
    "/system",
    "/history",
    "/relay",
    "/broker",
    "/broker/q/{queue}",
)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_holds_a_character_that_cannot_be_seen(told, path):
    served, failed, waiting = told
    address = path.format(
        name=quote(NAME),
        queue=address_of(NAME.encode()),
        failed=failed,
        waiting=waiting,
    )
    answer = served.get(address, Accept=web_server.BROWSER)
    assert answer.kind == "text/html", answer
    assert HIDDEN.findall(FIELDS.sub("", answer.text)) == []


@pytest.mark.parametrize("path", ["/q/hidden/{}", "/q/hidden/{}/log", "/q/hidden"])
def test_it_is_shown_by_its_number(told, path):
    served, failed, _ = told
    assert "gpj<U+202E><U+2066>" in served.page(path.format(failed))


def test_a_field_whose_name_holds_ends_of_lines_is_one_line(told):
    served, _, _ = told
    name = served.queue("exit 1", "lines")
    msg_id = served.send(name, **{f"x_a\r\nb{NAME}": "x"})
    page = served.page(f"/q/{name}/{msg_id}")
    assert "x_a<U+000D><U+000A>bgpj<U+202E>" in page


def test_a_form_sends_back_what_it_was_given(told):
    served, _, _ = told
    page = served.page(f"/q/hidden/new_message?param1={quote(NAME)}")
    assert NAME in page


def test_json_holds_the_values_as_they_are(told):
    served, failed, _ = told
    assert served.get(f"/q/hidden/{failed}.json").json["param1"] == NAME


def test_a_line_of_a_log_cannot_be_made_to_look_like_another_record(tmp_path):
    root = logging.getLogger()
    before = root.handlers[:], root.level
    logs.open_log("web", tmp_path / "web.log")
    try:
        root.warning("no file %s", f"{NAME}\nI 2026 web: all is well")
    finally:
        root.handlers[0].close()
        root.handlers[:], root.level = before
    first, second = (tmp_path / "web.log").read_text().splitlines()
    assert "gpj<U+202E><U+2066>" in first
    assert second.startswith("    I 2026")
