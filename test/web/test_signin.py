"""Signing in and out over real HTTP: tokens, passwords, sessions, `rq open`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
from harness.web_server import BROWSER, web_alone

from rq.access import logins, one_time_keys, tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.config import passwords
from rq.layout import Root

pytestmark = pytest.mark.system

USERS = {
    "ann": passwords.make("correct horse"),
    "vic": {
        "password": passwords.make("only look"),
        "role": "viewer",
        "queues": ["mail-*"],
    },
}
LOGIN = {"name": "ann", "password": "correct horse"}


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    path = tmp_path_factory.mktemp("users")
    with web_alone(path, basic_auth={"users": USERS}) as found:
        found.root = Root(path)
        yield found


def token(root, name, role=Role.VIEWER, **fields):
    secret = tokens.new_secret()
    made = {"created": time.time(), "created_by": "ann", **fields}
    digest = tokens.digest_of(secret)
    tokens.create(root, Token(name=name, sha256=digest, role=role, **made))
    return secret


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def sign_in(web, path="/login", headers=None, **fields):
    """Sign in as a browser does; return the answer and the header of its cookie."""
    answer = web.post(path, fields, Accept=BROWSER, **(headers or {}))
    cookie = answer.headers.get("set-cookie", "").partition(";")[0]
    return answer, cookie


def lines(web, name):
    file = web.root.log / name
    return file.read_text().splitlines() if file.exists() else []


# ---- tokens


def test_a_token_lets_a_program_in_until_it_is_revoked(web):
    secret = token(web.root, "prog")
    bearer = f"Bearer {secret}"
    assert web.get("/q.json", Authorization=bearer).json == []
    assert web.get("/q.json", Authorization=f"bearer   {secret} ").json == []
    tokens.revoke(web.root, "prog")
    answer = web.get("/q.json", Authorization=bearer)
    assert answer.status == 401
    assert "revoked" in answer.text


def test_a_token_may_do_what_its_role_may_and_ask_of_its_queues(web):
    limited = token(web.root, "limited", Role.OPERATOR, queues=("mail-*",))
    bearer = {"Authorization": f"Bearer {limited}"}
    assert web.post("/q/mail-out/restart", **bearer).status == 404
    assert web.post("/q/wages/restart", **bearer).status == 403
    assert web.post("/new_queue", **bearer).status == 403
    assert web.get("/system", **bearer).status == 403


@pytest.mark.parametrize(
    "shown", ["Bearer", "Bearer x", "Bearer rq_" + "0" * 64, "Digest x", "Basic", "x"]
)
def test_what_is_no_token_and_no_password_lets_nobody_in(web, shown):
    answer = web.get("/q.json", Authorization=shown)
    assert answer.status == 401
    assert "Bearer" in answer.headers["www-authenticate"]


def test_users_have_the_roles_that_the_config_gives_them(web):
    vic = {"Authorization": basic("vic", "only look")}
    assert web.get("/q.json", **vic).status == 200
    assert web.post("/q/mail-out/new_message", {"mesg": "{}"}, **vic).status == 403
    assert web.get("/q/wages.json", **vic).status == 403
    ann = {"Authorization": basic("ann", "correct horse")}
    assert web.get("/system.json", **ann).status == 200


# ---- the form


def test_a_browser_gets_the_form_and_needs_nothing_else_of_the_server(web):
    answer = web.get("/q/mail?x=1", Accept=BROWSER)
    assert (answer.status, answer.kind) == (401, "text/html")
    assert answer.headers["www-authenticate"] == "Bearer", "no dialog of the browser"
    assert 'value="/q/mail?x=1"' in answer.text
    assert 'role="status"' not in answer.text
    assert not re.search(r'(src|href)="(?!data:)', answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; style-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert web.get("/static/rq.css", Accept="text/css,*/*").status == 401
    assert web.get("/login", Accept=BROWSER).status == 200


def test_whoever_signs_in_goes_where_they_wanted_with_a_cookie_of_their_own(web):
    answer, cookie = sign_in(web, next="/q/mail?x=1", **LOGIN)
    assert (answer.status, answer.headers["location"]) == (303, "/q/mail?x=1")
    attributes = answer.headers["set-cookie"].lower()
    assert re.match(rf"rq_login_{web.port}=[0-9a-f]{{64}};", attributes)
    assert "httponly" in attributes
    assert "samesite=lax" in attributes
    assert "path=/" in attributes
    assert "secure" not in attributes
    page = web.get("/", Accept=BROWSER, Cookie=cookie)
    assert page.status == 200
    assert "Sign out" in page.text
    assert ">ann<" in page.text
    assert web.get("/q.json", Cookie=cookie).status == 200


def test_the_cookie_is_for_tls_alone_when_the_browser_came_over_tls(web):
    answer, _ = sign_in(web, headers={"X_Forwarded_Proto": "https"}, **LOGIN)
    assert "; secure" in answer.headers["set-cookie"].lower()


def test_somebody_may_sign_in_with_a_token_and_is_out_when_it_is_revoked(web):
    secret = token(web.root, "browse")
    answer, cookie = sign_in(web, token=f" {secret} ")
    assert answer.status == 303
    assert web.get("/q.json", Cookie=cookie).status == 200
    assert web.post("/q/x/restart", Cookie=cookie).status == 403
    tokens.revoke(web.root, "browse")
    assert web.get("/q.json", Cookie=cookie).status == 401


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "ann", "password": "tr0ub4dor"},
        {"name": "nobody", "password": "correct horse"},
        {"name": "ann", "password": USERS["ann"]},
        {"token": "rq_" + "0" * 64},
        {"token": "x", **LOGIN},
    ],
)
def test_a_wrong_login_shows_the_form_again_and_sets_no_cookie(web, fields):
    secret = fields.get("password", "never said")
    answer, cookie = sign_in(web, next="/q/mail", **fields)
    assert (answer.status, cookie) == (401, "")
    assert 'value="/q/mail"' in answer.text
    assert 'role="status"' in answer.text
    assert secret not in answer.text


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil",
        "/a\r\nSet-Cookie: x=1",
        "/login?out=1",
        "/logout",
        "",
    ],
)
def test_nobody_is_led_away_from_this_site_by_signing_in(web, wanted):
    answer, _ = sign_in(web, next=wanted, **LOGIN)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_a_cookie_that_was_planted_before_is_not_the_one_of_the_session(web):
    planted = f"rq_login_{web.port}=" + "0" * 64
    answer, cookie = sign_in(web, headers={"Cookie": planted}, **LOGIN)
    assert answer.status == 303
    assert cookie != planted
    assert web.get("/q.json", Cookie=planted).status == 401


def test_a_planted_cookie_does_not_hide_the_one_of_the_session(web):
    """A server at another port of this host can plant one; browsers send it first."""
    _, cookie = sign_in(web, **LOGIN)
    planted = f"rq_login_{web.port}=" + "0" * 64
    for shown in (f"{planted}; {cookie}", f"{cookie}; {planted}"):
        assert web.get("/q.json", Cookie=shown).status == 200
    assert web.post("/logout", Cookie=f"{planted}; {cookie}").status == 303
    assert web.get("/q.json", Cookie=cookie).status == 401


def test_who_signs_in_all_the_time_cannot_fill_the_audit_log(web):
    secret = token(web.root, "busy")
    answers = [sign_in(web, token=secret)[0] for _ in range(61)]
    assert {answer.status for answer in answers[:60]} == {303}
    assert answers[60].status == 429
    assert answers[60].headers["retry-after"]


def test_to_send_to_the_cleaner_takes_who_may_remove_messages(web):
    sender = {"Authorization": f"Bearer {token(web.root, 'sender', Role.PRODUCER)}"}
    operator = {"Authorization": f"Bearer {token(web.root, 'op', Role.OPERATOR)}"}
    url = "http://127.0.0.1:3333/q/cleaner"
    for path, dest in (("cleaner", "cleaner"), ("mail", "cleaner"), ("mail", url)):
        form = {"mesg": json.dumps({"dest": dest, "param1": "mail"})}
        assert web.post(f"/q/{path}/new_message", form, **sender).status == 403
        # Nobody serves these queues; and one that is for another is wrong.
        wrong = 404 if path == "cleaner" else 422
        assert web.post(f"/q/{path}/new_message", form, **operator).status == wrong
    clone = "/q/cleaner/20260102.0304.05.006.7/clone"
    assert web.post(clone, **sender).status == 403


@pytest.mark.parametrize("path", ["relay", "rq_router"])
@pytest.mark.parametrize(
    "rest", ["", "/", "/x", "//", "/20260102.0304.05.006.7", "?x", "#x"]
)
def test_nor_does_another_spelling_of_its_address_lead_to_the_cleaner(web, path, rest):
    name = tokens.new_secret()[:16]
    sender = {"Authorization": f"Bearer {token(web.root, name, Role.PRODUCER)}"}
    dest = f"http://127.0.0.1:3333/q/cleaner{rest}"
    form = {"mesg": json.dumps({"dest": dest, "param1": "mail"})}
    assert web.post(f"/q/{path}/new_message", form, **sender).status == 403


@pytest.mark.parametrize(
    ("path", "dest"), [("rq_router", "q/x/q/cleaner"), ("relay", "http://q/q/cleaner")]
)
def test_nor_does_one_that_another_reader_takes_for_the_cleaner_s(web, path, dest):
    """A rule's copy of the first goes to HOST/q/cleaner; the host of the second is q."""
    name = tokens.new_secret()[:16]
    sender = {"Authorization": f"Bearer {token(web.root, name, Role.PRODUCER)}"}
    form = {"mesg": json.dumps({"dest": dest, "param1": "mail"})}
    assert web.post(f"/q/{path}/new_message", form, **sender).status == 403


def test_signing_in_again_ends_the_session_before(web):
    _, first = sign_in(web, **LOGIN)
    _, second = sign_in(web, headers={"Cookie": first}, **LOGIN)
    assert web.get("/q.json", Cookie=first).status == 401
    assert web.get("/q.json", Cookie=second).status == 200


def test_a_session_is_of_no_use_to_another_user_of_the_machine(web):
    """A browser shows its cookies for localhost to each port, so to anybody's server."""
    _, cookie = sign_in(web, **LOGIN)
    assert web.get("/q.json", Cookie=cookie).status == 200
    assert status_as(4321, web.port, Cookie=cookie) == 401
    assert web.get("/q.json", Cookie=cookie).status == 200


def status_as(uid, port, path="q.json", more=(), **headers):
    """Return how a request of another user is answered; `more` is for curl."""
    words = [
        word for name, value in headers.items() for word in ("-H", f"{name}: {value}")
    ]
    told = subprocess.run(
        [
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            *words,
            *more,
            f"http://127.0.0.1:{port}/{path}",
        ],
        capture_output=True,
        check=True,
        user=uid,
        group=uid,
        extra_groups=[],
    )
    return int(told.stdout)


def test_a_page_of_another_site_signs_nobody_in_or_out(web):
    _, cookie = sign_in(web, **LOGIN)
    for headers in (
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://evil.example"},
    ):
        assert sign_in(web, headers=headers, **LOGIN)[0].status == 403
        assert web.post("/logout", Cookie=cookie, **headers).status == 403
        assert web.post("/q/x/ack_errs", Cookie=cookie, **headers).status == 403
    key = one_time_keys.make(web.root, "ann", time.time())
    answer = web.get(f"/login?once={key}", Sec_Fetch_Site="cross-site")
    assert answer.status == 403
    assert web.get("/q.json", Cookie=cookie).status == 200


def test_signing_out_ends_the_session_and_says_so(web):
    _, cookie = sign_in(web, **LOGIN)
    answer = web.post("/logout", Cookie=cookie)
    assert (answer.status, answer.headers["location"]) == (303, "/login?out=1")
    assert f'rq_login_{web.port}=""' in answer.headers["set-cookie"]
    assert web.get("/q.json", Cookie=cookie).status == 401
    assert "You have signed out" in web.get("/login?out=1", Accept=BROWSER).text
    assert web.get("/logout").status == 405
    assert web.post("/logout").status == 303, "twice does no harm"


def test_a_form_of_many_bytes_is_refused_unread(web):
    assert web.post("/login", {"name": "x" * 20_000}).status == 413


def test_a_form_of_unknown_length_is_refused_unread(web):
    head = (
        "POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n"
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    assert bound_to("127.0.0.1", web.port, head.encode()) == 411


@pytest.mark.slow
def test_a_password_that_nobody_asked_for_does_no_harm_where_no_login_is_set(tmp_path):
    with web_alone(tmp_path) as web:
        given = {"Authorization": basic("ann", "x")}
        assert web.get("/q.json", **given).status == web.get("/q.json").status == 200
        assert web.get("/q.json", Authorization="Bearer x").status == 401
        stale = {"Cookie": f"rq_login_{web.port}=" + "0" * 64}
        assert web.get("/q.json", **stale).status == 200


def test_under_a_relative_root_the_cookie_goes_there_alone(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}, relative_root="/rq/") as web:
        answer, cookie = sign_in(web, "/rq/login", next="/elsewhere", **LOGIN)
        assert answer.headers["location"] == "/rq/"
        assert "path=/rq;" in answer.headers["set-cookie"].lower() + ";"
        assert web.get("/rq/q.json", Cookie=cookie).status == 200
        assert web.get("/login").status == 401
        assert 'action="/rq/login"' in web.get("/rq/", Accept=BROWSER).text


# ---- keys that sign in once


def test_the_address_of_rq_open_signs_in_once(web):
    key = one_time_keys.make(web.root, "ann", time.time())
    assert web.ask("HEAD", f"/login?once={key}").status == 200, "a look uses no key"
    answer = web.get(f"/login?once={key}", Accept=BROWSER, Sec_Fetch_Site="none")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert web.get("/system.json", Cookie=cookie).status == 200
    again = web.get(f"/login?once={key}", Accept=BROWSER)
    assert again.status == 401
    assert "rq open" in again.text
    assert key not in again.text


@pytest.mark.slow
def test_of_all_who_take_one_key_at_the_same_time_one_gets_in(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}, web_workers=2) as web:
        key = one_time_keys.make(Root(tmp_path), "ann", time.time())
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda _: web.get(f"/login?once={key}"), range(32)))
        assert sorted(answer.status for answer in got) == [303] + [401] * 31


# ---- two processes


@pytest.mark.slow
def test_all_web_processes_see_a_session_begin_and_end_and_a_token_revoked(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}, web_workers=2) as web:
        root = Root(tmp_path)

        def answers(**headers):
            # Each request comes over a connection of its own, to one of the processes.
            with ThreadPoolExecutor(8) as pool:
                every = pool.map(lambda _: web.get("/q.json", **headers), range(40))
                return {answer.status for answer in every}

        _, cookie = sign_in(web, **LOGIN)
        bearer = f"Bearer {token(root, 'both')}"
        assert answers(Cookie=cookie) == {200}
        assert answers(Authorization=bearer) == {200}
        web.post("/logout", Cookie=cookie)
        tokens.revoke(root, "both")
        assert answers(Cookie=cookie) == {401}
        assert answers(Authorization=bearer) == {401}


# ---- guesses


def bound_to(address, port, data):
    """Send bytes from an address of this machine; return the status of the answer."""
    with socket.socket() as sock:
        sock.settimeout(60)
        sock.bind((address, 0))
        sock.connect(("127.0.0.1", port))
        sock.sendall(data)
        return int(sock.recv(4096).split()[1])


def form_from(address, port, **fields):
    body = urlencode(fields).encode()
    head = (
        "POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return bound_to(address, port, head.encode() + body)


@pytest.mark.slow
def test_while_hundreds_guess_a_right_login_from_elsewhere_is_let_in(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}) as web:
        header = {"Authorization": basic("ann", "correct horse")}
        assert web.get("/q.json", **header).status == 200
        enough, began = threading.Event(), time.monotonic()

        def guess(number):
            answers = []
            while len(answers) < 4 or not enough.is_set():
                fields = {"name": "ann", "password": f"{number} {len(answers)}"}
                answers.append(form_from("127.0.0.9", web.port, **fields))
            return answers

        with ThreadPoolExecutor(100) as pool:
            every = pool.map(guess, range(100))
            try:
                fields = ("-d", urlencode(LOGIN))
                right = status_as(4322, web.port, "login", fields)
                remembered = web.get("/q.json", **header).status
            finally:
                enough.set()
            ended = [status for answers in every for status in answers]
        paid = (time.monotonic() - began) / logins.PAUSE
        assert (right, remembered) == (303, 200)
        assert set(ended) == {401, 429}
        assert logins.AT_ONCE <= ended.count(401) <= logins.AT_ONCE + paid
        wrong = ("-d", "name=ann&password=x")
        late = status_as(4323, web.port, "login", wrong)
        assert late == 401, "nobody else is slowed"


def guessed(status_of):
    """Guess until it is too often; return how often one could: a machine that is slow has
    paid for one more meanwhile."""
    for number in range(3 * logins.AT_ONCE):
        status = status_of(basic("nobody", f"wrong {number}"))
        if status == 429:
            return number
        assert status == 401
    raise AssertionError("nobody who guesses is slowed")


@pytest.mark.slow
def test_a_user_of_this_machine_who_guesses_slows_no_other_user_of_it(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}) as web:

        def status_of(wrong, *more):
            return status_as(4321, web.port, more=more, Authorization=wrong)

        def from_elsewhere(wrong):
            return status_of(wrong, "--interface", "127.0.0.77")

        assert guessed(status_of) >= logins.AT_ONCE
        assert guessed(from_elsewhere) < logins.AT_ONCE
        right = basic("ann", "correct horse")
        assert web.get("/q.json", Authorization=right).status == 200


@pytest.mark.parametrize("path", ["/login", "/q/t/new_message"])
def test_strangers_who_send_a_body_slowly_keep_nobody_out(tmp_path, path):
    with (
        web_alone(tmp_path, basic_auth={"users": USERS}, web_connections=16) as web,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(24):
            line = socket.create_connection(("127.0.0.1", web.port), 60)
            stack.enter_context(line).sendall(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\n"
                "Content-Length: 30000000\r\n\r\nx".encode()
            )
        right = basic("ann", "correct horse")
        for _ in range(20):  # also when all bodies are being read
            assert web.get("/q.json", Authorization=right).status == 200


@pytest.mark.slow
def test_who_must_wait_is_told_how_long(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}) as web:
        answers = []

        def status_of(wrong):
            answers.append(web.get("/q.json", Authorization=wrong))
            return answers[-1].status

        assert guessed(status_of) >= logins.AT_ONCE
        answer = answers[-1]
        assert 1 <= int(answer.headers["retry-after"]) <= logins.PAUSE
        page, _ = sign_in(web, **LOGIN)
        assert page.status == 429
        assert "wait, then try again" in page.text


def test_the_page_leads_to_nothing_that_is_refused_to_who_may_ask_of_some_queues(web):
    text = web.page("/", Authorization=basic("vic", "only look"))
    assert 'title="vic is viewer here"' in text
    assert [
        one for one in ("/history", "/timers", "/system") if f'"{one}"' in text
    ] == []
    assert '"/history"' in web.page("/", Authorization=basic("ann", "correct horse"))


# ---- the audit logs


def test_who_did_what_is_written_down_and_no_secret_is(tmp_path):
    with web_alone(tmp_path, basic_auth={"users": USERS}) as web:
        web.root = Root(tmp_path)
        secret, key = (
            token(web.root, "ci", Role.ADMIN),
            one_time_keys.make(web.root, "cid", time.time()),
        )
        _, cookie = sign_in(web, **LOGIN)
        web.get(f"/login?once={key}")
        web.post("/delete_queue?note=hush", {"queue_name": "x\ny"}, Cookie=cookie)
        web.post("/q/x/restart", Authorization=f"Bearer {secret}")
        web.post("/q/x/new_message", {"mesg": "{}"}, Authorization=f"Bearer {secret}")
        sign_in(web, name="ann", password="hush hush")
        sign_in(web, name="correct horse", password="hush hush")
        web.get("/q/x.json?token=hush", Authorization=f"Bearer {secret}x")
        web.post("/logout", Cookie=cookie)
        done = [re.sub(r"^time=\S+ ", "", line) for line in lines(web, "audit.log")]
        refused = [
            re.sub(r"^time=\S+ ", "", line) for line in lines(web, "refused.log")
        ]
    assert done == [
        'who=ann address=127.0.0.1 what="signed in by password" answer=303',
        'who=cid address=127.0.0.1 what="signed in by once" answer=303',
        r'who=ann address=127.0.0.1 what="POST /delete_queue queue_name=x\ny" answer=404',
        'who=token:ci address=127.0.0.1 what="POST /q/x/restart" answer=404',
        'who=ann address=127.0.0.1 what="signed out" answer=303',
    ]
    assert refused == [
        'who=ann address=127.0.0.1 what="POST /login" answer=401',
        'who=- address=127.0.0.1 what="POST /login" answer=401',
        'who=- address=127.0.0.1 what="GET /q/x.json" answer=401',
    ]
    text = "".join(
        file.read_text() for file in Root(tmp_path).log.iterdir() if file.is_file()
    )
    for hidden in ("hush", secret, key, cookie.partition("=")[2], "correct horse"):
        assert hidden not in text


def test_a_key_for_one_user_of_the_machine_is_of_no_use_to_another_nor_ended_by_him(
    web,
):
    """What starts a browser is there for all users to read."""
    key = one_time_keys.make(web.root, "ann", time.time(), os.getuid())
    assert status_as(4321, web.port, f"login?once={key}") == 401
    assert web.get(f"/login?once={key}", Via="1.1 proxy").status == 401
    assert web.get(f"/login?once={key}").status == 303
