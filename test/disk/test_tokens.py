"""Tokens: what the file holds, who is let in by it, and what a damaged one does."""

from __future__ import annotations

import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.limits import no_descriptors

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token, Tokens
from rq.config import files
from rq.errors import BadInput, CannotRead
from rq.layout import Root

NOW = 1_800_000_000.0


@pytest.fixture
def root(tmp_path):
    files.make_root(Root(tmp_path))
    return Root(tmp_path)


def add(root, name="ci", **fields):
    secret = tokens.new_secret()
    values = {"role": Role.PRODUCER, "created": NOW, "created_by": "ann", **fields}
    digest = tokens.digest_of(secret)
    tokens.create(root, Token(name=name, sha256=digest, **values))
    return secret


def test_a_token_lets_in_until_it_is_revoked(root):
    known = Tokens(root)
    secret = add(root, queues=("mail-*",))
    principal = known.principal(secret, NOW)
    assert (principal.name, principal.role) == ("token:ci", Role.PRODUCER)
    assert principal.sees("mail-out")
    assert not principal.sees("wages")
    tokens.revoke(root, "ci")
    assert known.principal(secret, NOW) is None


def test_a_token_may_send_to_queues_beyond_its_role(root):
    secret = add(root, role=Role.WORKER, queues=("mail",), sends=("audit-*",))
    principal = Tokens(root).principal(secret, NOW)
    assert principal.may_send("audit-1")
    assert not principal.may_send("mail")
    assert not principal.sees("audit-1")


def test_an_older_rq_reads_a_token_that_sends_nowhere_else(root):
    add(root)
    assert "sends" not in root.tokens.read_text()


def test_a_token_ends_at_its_end(root):
    secret = add(root, end=NOW + 10)
    known = Tokens(root)
    assert known.principal(secret, NOW + 9.9)
    assert known.principal(secret, NOW + 10) is None
    assert tokens.warnings(root, NOW + 9.9) == []
    assert "ci has ended" in tokens.warnings(root, NOW + 10)[0]


def test_no_secret_is_on_disk_and_nobody_else_may_read_the_file(root):
    secret = add(root)
    assert re.fullmatch(r"rq_[0-9a-f]{64}", secret)
    text = root.tokens.read_text()
    assert secret not in text
    assert secret.removeprefix("rq_") not in text
    assert stat.S_IMODE(root.tokens.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "guess", ["", "rq_", "x" * 67, "rq_" + "0" * 64, "\udc80", "é"]
)
def test_a_guess_lets_nobody_in(root, guess):
    add(root)
    assert Tokens(root).principal(guess, NOW) is None


def test_the_digest_in_the_file_is_no_secret(root):
    digest = tokens.digest_of(add(root))
    assert Tokens(root).principal(digest, NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"tokens": {}}',
        '{"tokens": [3]}',
        '{"tokens": [{}]}',
        '{"tokens": [{"name": "a", "sha256": "00", "role": "admin", "queues": ["*"], '
        '"created": 1, "created_by": "x"}]}',
        '{"tokens": [{"name": "a", "sha256": "' + "0" * 64 + '", "role": "king", '
        '"queues": ["*"], "created": 1, "created_by": "x"}]}',
        '{"tokens": [{"name": "a", "sha256": "' + "0" * 64 + '", "role": "admin", '
        '"queues": "abc", "created": 1, "created_by": "x"}]}',
        '{"tokens": [{"name": "a", "sha256": "' + "0" * 64 + '", "role": "worker", '
        '"queues": ["a"], "sends": "b", "created": 1, "created_by": "x"}]}',
        "\0\xff",
    ],
)
def test_a_damaged_file_lets_nobody_in_and_says_so(root, caplog, text):
    secret = add(root)
    known = Tokens(root)
    assert known.principal(secret, NOW)
    root.tokens.write_text(text)
    assert known.principal(secret, NOW) is None
    assert known.principal(secret, NOW) is None
    [line] = caplog.messages
    assert str(root.tokens) in line
    [sentence] = tokens.warnings(root, NOW)
    assert str(root.tokens) in sentence


def test_a_fifo_in_place_of_the_file_holds_nobody_up(root):
    os.mkfifo(root.tokens)
    assert Tokens(root).principal("rq_x", NOW) is None


def test_a_file_that_nobody_may_read_lets_nobody_in(root):
    secret = add(root)
    root.tokens.unlink()
    root.tokens.symlink_to("tokens.json")
    assert Tokens(root).principal(secret, NOW) is None


def test_a_damaged_file_is_never_written_over(root):
    root.tokens.write_text("{")
    with pytest.raises(Exception, match="tokens"):
        add(root)
    assert root.tokens.read_text() == "{"


def test_a_name_is_given_once(root):
    add(root)
    with pytest.raises(BadInput, match="revoke ci"):
        add(root)
    with pytest.raises(BadInput, match="rq token ls"):
        tokens.revoke(root, "none")


@pytest.mark.parametrize("name", ["", ".x", "a b", "a\n", "a:b", "x" * 65, "é", "a/b"])
def test_a_name_that_cannot_be_shown_in_one_word_is_refused(root, name):
    with pytest.raises(BadInput, match="cannot be the name"):
        add(root, name=name)


def test_of_many_who_add_at_once_nobody_is_lost(root):
    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(lambda n: add(root, name=f"t{n}"), range(40)))
    known = Tokens(root)
    assert all(known.principal(secret, NOW) for secret in secrets)
    assert len(json.loads(root.tokens.read_text())["tokens"]) == 40


def test_a_lack_of_descriptors_ends_no_token(root, caplog):
    known = Tokens(root)
    secret = add(root)
    with no_descriptors():
        for _ in range(3):
            with pytest.raises(CannotRead):
                known.principal(secret, NOW)
    assert known.principal(secret, NOW).name == "token:ci"
    assert "cannot be used" not in caplog.text


def test_a_lack_of_descriptors_does_not_say_that_there_is_no_token(root):
    # The web would not start again: it is open to others and nobody can sign in.
    add(root)
    assert tokens.exist(root)
    with no_descriptors(), pytest.raises(CannotRead):
        tokens.exist(root)
