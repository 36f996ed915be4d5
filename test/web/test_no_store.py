"""No answer but the files of the pages may be kept, and no secret is for viewers."""

import contextlib
import http.client
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import web_server
from harness.checkout import CHECKOUT
from harness.extent import rotated
from harness.waiting import wait_until

from rq.access import tokens
from rq.access.roles import Principal, Role
from rq.access.tokens import Token
from rq.config import secrets
from rq.config.settings import RootConfig
from rq.layout import Root
from rq.web import answers, app, site

pytestmark = pytest.mark.process

KEPT = ("/static/{path:path}", "/css/rq.css", "/favicon.ico")
FIELD = re.compile(r"\{(\w+)[^}]*\}")
SECRETS = {"API_TOKEN": "sesame1", "DB": "postgres://u:sesame2@h/d", "LANG": "C"}


def every_get():
    table = app.table(site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32))
    streams = ("/follow", "/events")  # they have tests of their own
    return [
        path
        for path in table.paths
        if "GET" in table.methods(path) and not path.endswith(streams)
    ]


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with web_server.served(tmp_path_factory.mktemp("root") / "rq") as served:
        name = served.queue("echo done >&3; echo x > file", "kept", env_vars=SECRETS)
        served.done = served.send(name)
        wait_until(lambda: served.state(name, served.done) == "done")
        yield served


@pytest.mark.parametrize("path", every_get())
@pytest.mark.parametrize("accept", [web_server.BROWSER, "application/json"])
def test_nothing_is_kept_by_a_browser_but_the_files_of_the_pages(web, path, accept):
    known = {"name": "kept", "msg_id": web.done, "path": "rq.css", "file": "stdio.log"}
    address = FIELD.sub(lambda field: known.get(field[1], "x"), path)
    answer = web.get(address, Accept=accept)
    wanted = "no-cache" if path in KEPT else "no-store"
    assert answer.headers["cache-control"] == wanted, answer


@pytest.mark.parametrize(
    "path", ["/nothing/here", "/q/kept/{done}/follow", "/livez", "/readyz", "/%00"]
)
def test_neither_are_errors_and_streams(web, path):
    answer = web.get(path.format(done=web.done))
    assert answer.headers["cache-control"] == "no-store"


def test_nor_is_a_stream_that_does_not_end(web):
    line = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    with contextlib.closing(line):
        line.request("GET", "/api/v1/queues/kept/events")
        assert line.getresponse().getheader("cache-control") == "no-store"


def test_answers_to_forms_are_not_kept(web):
    before = web.daemon.until_up("kept")["pid"]
    for path in ("/q/kept/new_message", "/new_queue", "/q/kept/restart"):
        assert web.post(path, {}).headers["cache-control"] == "no-store"
    # The tests after this one ask the queue that comes back, not the one that goes.
    wait_until(lambda: web.daemon.until_up("kept")["pid"] != before)
    wait_until(lambda: "env_vars" in web.get("/q/kept/config").json)


@pytest.mark.parametrize(
    "name", ["PASSWORD", "db_passwd", "Token", "AWS_SECRET_ACCESS_KEY", "API_KEY",
             "apikey", "SSH_PRIVATE_KEY", "spark.hadoop.fs.s3a.secret.key", "PGPASS"]
)  # fmt: skip
def test_a_value_whose_name_says_secret_is_hidden(name):
    config = {"env_vars": {name: "sesame"}, "deep": [{"er": {name: ["sesame"]}}]}
    assert "sesame" not in json.dumps(secrets.masked(config))


@pytest.mark.parametrize("name", ["LANG", "PATH", "MONKEY", "KEYBOARD", "HOST", "TZ"])
def test_a_value_whose_name_does_not_is_shown(name):
    assert secrets.masked({"spark": {name: "x"}}) == {"spark": {name: "x"}}


@pytest.mark.parametrize("setting", ["env_vars", "worker_env"])
def test_of_an_environment_the_names_are_shown_alone(setting):
    masked = secrets.masked({setting: {"LANG": "sesame", "TZ": "sesame"}})
    assert masked == {setting: dict.fromkeys(["LANG", "TZ"], secrets.HIDDEN)}


@pytest.mark.parametrize(
    ("role", "sees"),
    [(None, False), *((role, role is Role.ADMIN) for role in Role)],
)
def test_secrets_are_for_admins(role, sees):
    principal = role and Principal(name="x", role=role)
    asking = SimpleNamespace(context=SimpleNamespace(principal=principal))
    assert answers.sees_secrets(asking) is sees


def test_who_owns_rq_sees_its_config_as_it_is(web):
    assert web.get("/q/kept/config.json").json["env_vars"] == SECRETS
    assert web.get("/q/kept/config").json["env_vars"] == SECRETS
    assert "sesame1" in web.page("/q/kept")


# ---- addresses in messages

HOOK = "https://me:pw@hooks.example/T00/sesame"
HOST = "https://hooks.example/(hidden)"


@pytest.fixture(scope="module")
def hooked(tmp_path_factory):
    """Give a web whose messages hold addresses that are secrets, and its viewer's header."""
    with web_server.served(tmp_path_factory.mktemp("root") / "rq") as served:
        script = f'exec "{CHECKOUT}/rq/bundled/webhook/run"'
        says = f"printf 'err no {HOOK}\\n' >&3; exit 1"
        for name, runs in (("webhook", script), ("notice", says), ("mine", "exit 3")):
            served.queue(runs, name, retry=None)
        story = json.dumps({"id": "x", "post_run_webhook": [HOOK], "state": "done"})
        fields = {"param1": HOOK, "param2": story, "post_run_webhook": [HOOK]}
        kept = {
            name: [served.send(name, **fields), served.send(name, due=4e9, **fields)]
            for name in ("webhook", "notice")
        }
        mine = {"post_run_webhook": [HOOK]}
        kept["mine"] = [
            served.send("mine", **mine),
            served.send("mine", due=4e9, **mine),
        ]
        for name in ("notice", "mine"):
            wait_until(lambda n=name: served.state(n, kept[n][0]) == "err")
        request = {"action": "hold", "state": "que", "param1": HOOK, "with": "x"}
        served.daemon.ask_queue("webhook", "bulk", request)
        secret = tokens.new_secret()
        token = Token(
            name="vera",
            sha256=tokens.digest_of(secret),
            role=Role.VIEWER,
            created=time.time(),
            created_by="test",
            queues=("*",),
        )
        tokens.create(served.daemon.root, token)
        yield served, kept, {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("accept", rotated([web_server.BROWSER, "application/json"]))
@pytest.mark.parametrize("name", ["webhook", "notice", "mine"])
def test_of_addresses_in_messages_a_viewer_is_shown_the_hosts(hooked, name, accept):
    web, kept, vera = hooked
    shown = ""
    for path in every_get():
        for msg_id in kept[name]:
            said = {
                "name": name,
                "msg_id": msg_id,
                "file": "stdio.log",
                "path": "rq.css",
            }
            address = FIELD.sub(lambda field, said=said: said.get(field[1], "x"), path)
            answer = web.get(address, Accept=accept, **vera)
            is_log = name == "notice" and ("log" in path or "{file}" in path)
            assert is_log or b"sesame" not in answer.body, address
            shown += answer.text if answer.status == 200 else ""
    assert "hooks.example/(hidden)" in shown
    for find in ("/q/{}?find=sesame", "/q/{}?state=que&find=sesame"):
        assert not any(i in web.page(find.format(name), **vera) for i in kept[name])


def test_an_admin_sees_addresses_in_messages_as_they_are(hooked):
    web, kept, _ = hooked
    for name, [_, waiting] in kept.items():
        assert HOOK in web.page(f"/q/{name}/{waiting}")
        assert web.get(f"/q/{name}/{waiting}.json").json["post_run_webhook"] == [HOOK]


def test_no_log_of_rq_holds_an_address_of_a_message(hooked):
    web, _, _ = hooked
    bad = {"dest": "mine", "post_run_webhook": ["hooks.example/sesame"]}
    web.post("/q/mine/new_message", {"mesg": json.dumps(bad)})
    folder = web.daemon.root.path / "inbox"
    folder.mkdir()
    (folder / "msg").write_text(json.dumps(bad))
    folder.rename(web.daemon.root.queue("mine").path / "new" / "sent")
    wait_until(lambda: not any((web.daemon.root.queue("mine").path / "new").iterdir()))
    for log in web.daemon.root.log.rglob("*"):
        if log.is_file():
            assert b"sesame" not in log.read_bytes(), log
