"""Sessions and keys that sign in once: what ends them, and what the disk tells of them."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.limits import no_descriptors

from rq.access import logins, one_time_keys, sessions, tokens
from rq.access.roles import Role
from rq.access.sessions import How, Sessions
from rq.access.tokens import Token, Tokens
from rq.config import files, passwords
from rq.config.settings import RootConfig
from rq.errors import CannotRead
from rq.layout import Root
from rq.web import session

NOW = 1_800_000_000.0
HASH = passwords.make("right")
ANN = {"password": HASH, "role": "operator", "queues": ["mail-*"]}


@pytest.fixture
def root(tmp_path):
    files.make_root(Root(tmp_path))
    return Root(tmp_path)


def users(**given):
    if not given:
        return {}
    return logins.users(RootConfig(basic_auth={"users": given}))


def sessions_of(root, **given):
    return Sessions(root, users(**given), Tokens(root))


def of_ann(root, now=NOW):
    known = sessions_of(root, ann=ANN)
    return known.begin("ann", How.PASSWORD, users(ann=ANN)["ann"].proof, now)


def test_a_session_is_seen_by_all_processes_until_one_of_them_ends_it(root):
    one, other = sessions_of(root, ann=ANN), sessions_of(root, ann=ANN)
    cookie = of_ann(root)
    principal = other.principal(cookie, NOW)
    assert (principal.name, principal.role) == ("ann", Role.OPERATOR)
    assert not principal.sees("wages")
    assert one.end(cookie) == "ann"
    assert other.principal(cookie, NOW) is None
    assert one.end(cookie) is None


def test_no_cookie_is_on_disk_and_nobody_else_may_read_the_files(root):
    cookie = of_ann(root)
    [file] = root.sessions.iterdir()
    assert cookie not in file.name + file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(cookie) == 64
    assert sessions_of(root, ann=ANN).principal(file.name, NOW) is None


@pytest.mark.parametrize("cookie", ["", "x", "../../config.json", "\udc80", "0" * 64])
def test_a_cookie_that_was_never_given_is_nobodys(root, cookie):
    of_ann(root)
    assert sessions_of(root, ann=ANN).principal(cookie, NOW) is None


def test_a_session_ends_when_it_is_idle_and_after_a_week_whatever_is_done(root):
    known = sessions_of(root, ann=ANN)
    cookie, idle = of_ann(root), of_ann(root)
    step = sessions.IDLE - 1
    now = NOW
    while now + step < NOW + sessions.LONGEST:
        now += step
        assert known.principal(cookie, now), now - NOW
    assert known.principal(cookie, NOW + sessions.LONGEST) is None
    assert known.principal(idle, NOW + sessions.IDLE) is None
    assert list(root.sessions.iterdir()) == []


def test_a_session_ends_with_the_password_it_stands_on_and_has_the_role_of_now(root):
    cookie = of_ann(root)
    viewer = {**ANN, "role": "viewer"}
    assert sessions_of(root, ann=viewer).principal(cookie, NOW).role is Role.VIEWER
    changed = {**ANN, "password": passwords.make("right")}
    assert sessions_of(root, ann=changed).principal(cookie, NOW) is None
    assert sessions_of(root, ann=ANN).principal(cookie, NOW) is None, "it is gone"
    for others in ({"bob": HASH}, {}):
        assert sessions_of(root, **others).principal(of_ann(root), NOW) is None


def test_a_session_ends_with_its_token(root):
    digest = tokens.digest_of(tokens.new_secret())
    made = Token(
        name="ci",
        sha256=digest,
        role=Role.VIEWER,
        created=NOW,
        created_by="ann",
        end=NOW + 100,
    )
    tokens.create(root, made)
    known = sessions_of(root)
    cookies = [known.begin("token:ci", How.TOKEN, digest, NOW) for _ in range(2)]
    assert known.principal(cookies[0], NOW + 99).name == "token:ci"
    assert known.principal(cookies[0], NOW + 100) is None
    tokens.revoke(root, "ci")
    assert known.principal(cookies[1], NOW) is None


def test_sessions_of_one_user_are_bounded_and_push_out_nobody_else(root):
    known = sessions_of(root, ann=ANN)
    first = of_ann(root)
    other = known.begin("root", How.ONCE, "", NOW)
    newest = [of_ann(root, NOW + 1 + n) for n in range(sessions.EACH)]
    now = NOW + 100
    assert known.principal(first, now) is None
    assert all(known.principal(cookie, now) for cookie in newest)
    assert known.principal(other, now).role is Role.ADMIN
    assert len(list(root.sessions.iterdir())) == sessions.EACH + 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"who": "ann", "how": "magic"}']
)
def test_a_damaged_session_lets_nobody_in_and_goes(root, text):
    cookie = of_ann(root)
    [file] = root.sessions.iterdir()
    file.write_text(text)
    assert sessions_of(root, ann=ANN).principal(cookie, NOW) is None
    of_ann(root)
    assert len(list(root.sessions.iterdir())) == 1


# ---- keys that sign in once


def test_a_key_is_taken_by_one_of_all_who_try(root):
    key = one_time_keys.make(root, "ann", NOW)
    with ThreadPoolExecutor(16) as pool:
        who = list(
            pool.map(lambda _: one_time_keys.take(root, key, NOW + 1), range(64))
        )
    assert sorted(filter(None, who)) == ["ann"]
    assert list(root.once.iterdir()) == []


def test_a_key_ends_after_a_minute_and_those_that_nobody_took_go(root):
    key = one_time_keys.make(root, "ann", NOW)
    assert one_time_keys.take(root, key, NOW + one_time_keys.SECONDS) is None
    assert one_time_keys.take(root, key, NOW) is None
    one_time_keys.make(root, "ann", NOW)
    one_time_keys.make(root, "ann", NOW + 61)
    [file] = root.once.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_new_key_ends_no_other_that_nobody_took_yet(root):
    key = one_time_keys.make(root, "ann", NOW)
    one_time_keys.make(root, "bob", NOW + 1)
    assert one_time_keys.take(root, key, NOW + 2) == "ann"


@pytest.mark.parametrize("key", ["", "0" * 64, "../tokens.json", "\udc80"])
def test_a_key_that_nobody_made_signs_nobody_in(root, key):
    assert one_time_keys.take(root, key, NOW) is None


def test_a_lack_of_descriptors_ends_no_session_and_uses_no_key(root):
    known, cookie = sessions_of(root, ann=ANN), of_ann(root)
    key = one_time_keys.make(root, "ann", NOW)
    with no_descriptors():
        with pytest.raises(CannotRead):
            known.principal(cookie, NOW)
        with pytest.raises(CannotRead):
            one_time_keys.take(root, key, NOW)
    assert known.principal(cookie, NOW).name == "ann"
    assert one_time_keys.take(root, key, NOW) == "ann"


def test_to_look_whether_a_session_stands_is_no_use_of_it(root):
    known = sessions_of(root, ann=ANN)
    cookie = of_ann(root)
    for hour in range(1, 12):
        assert known.stands(cookie, NOW + hour * 3600)
    assert not known.stands(cookie, NOW + sessions.IDLE)
    assert known.principal(cookie, NOW + sessions.IDLE) is None


def test_a_clock_that_went_back_far_ends_a_session(root):
    known = sessions_of(root, ann=ANN)
    cookie = of_ann(root)
    assert known.stands(cookie, NOW - sessions.IDLE)
    assert not known.stands(cookie, NOW - sessions.IDLE - 1)


def test_web_processes_that_start_at_once_have_one_secret(tmp_path):
    for number in range(20):
        root = Root(tmp_path / str(number))
        root.config_dir.mkdir(parents=True)
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(session.secret_of, [root] * 8))
        assert found == {root.web_secret.read_bytes()}
