"""Tokens of attempts on disk: whose they are, and that a dead process stands for none."""

import json

import pytest

from rq.access.attempt_tokens import AttemptTokens, message_of, of_attempt
from rq.access.roles import EVERY_QUEUE, Principal, Role
from rq.layout import Root


def test_a_token_stands_while_its_process_does(tmp_path):
    root = Root(tmp_path)
    secret = AttemptTokens(root, "mail").begin("m1", "ann")["RQ_TOKEN"]
    principal = of_attempt(root, secret)
    assert principal is not None
    assert (principal.sees("mail"), principal.sees("other")) == (True, False)
    assert principal.may_send("other")
    [path] = root.attempt_tokens.iterdir()
    about = json.loads(path.read_text())
    boot, pid, began = about["owner"].split("/")
    for owner in (f"{boot}/{pid}/1", f"x/{pid}/{began}"):  # its number went to another
        path.write_text(json.dumps({**about, "owner": owner}))
        assert of_attempt(root, secret) is None


def test_a_start_of_a_queue_removes_its_own_tokens_alone(tmp_path):
    root = Root(tmp_path)
    one = AttemptTokens(root, "mail").begin("m1", "ann")["RQ_TOKEN"]
    other = AttemptTokens(root, "other").begin("m1", "ann")["RQ_TOKEN"]
    AttemptTokens(root, "mail")
    assert of_attempt(root, one) is None
    assert of_attempt(root, other) is not None


def test_the_token_of_an_attempt_ends_with_it_and_no_other_does(tmp_path):
    root = Root(tmp_path)
    tokens = AttemptTokens(root, "mail")
    secret, other = (tokens.begin(of, "ann")["RQ_TOKEN"] for of in ("m1", "m2"))
    tokens.end("m1")
    tokens.end("m1")
    tokens.end("never begun")
    assert of_attempt(root, secret) is None
    assert of_attempt(root, other) is not None
    assert len(list(root.attempt_tokens.iterdir())) == 1


def test_a_token_that_the_disk_keeps_is_removed_later_and_said_so(tmp_path, caplog):
    root = Root(tmp_path)
    tokens = AttemptTokens(root, "mail")
    secret = tokens.begin("m1", "ann")["RQ_TOKEN"]
    [path] = root.attempt_tokens.iterdir()
    text = path.read_text()
    path.unlink()
    path.mkdir()  # what cannot be unlinked
    tokens.end("m1")
    assert "cannot be removed" in caplog.text
    path.rmdir()
    path.write_text(text)
    tokens.remove_again()
    assert of_attempt(root, secret) is None
    path.write_text(text)
    tokens.remove_again()
    assert path.exists(), "what is removed is not looked for again"


def test_a_token_that_cannot_be_written_leaves_nothing(tmp_path):
    root = Root(tmp_path)
    tokens = AttemptTokens(root, "mail")
    root.attempt_tokens.parent.mkdir(parents=True, exist_ok=True)
    root.attempt_tokens.write_text("no directory")
    with pytest.raises(OSError, match="attempt"):
        tokens.begin("m1", "ann")


@pytest.mark.parametrize(
    ("about", "user"), [({"user": "ann"}, "ann"), ({"user": ""}, "attempt:mail")]
)
def test_an_attempt_is_its_user_or_that_of_its_queue(tmp_path, about, user):
    root = Root(tmp_path)
    secret = AttemptTokens(root, "mail").begin("m1", about["user"])["RQ_TOKEN"]
    assert of_attempt(root, secret).user == user


@pytest.mark.parametrize("about", [{"queue": None}, {"owner": None}, {"queue": 1}])
def test_a_token_without_a_queue_or_an_owner_is_none(tmp_path, about):
    root = Root(tmp_path)
    secret = AttemptTokens(root, "mail").begin("m1", "ann")["RQ_TOKEN"]
    [path] = root.attempt_tokens.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | about))
    assert of_attempt(root, secret) is None


ID = "20270115.0800.00.000.123"


@pytest.mark.parametrize(
    ("name", "sends", "message"),
    [
        (f"attempt:mail/{ID}", EVERY_QUEUE, f"mail/{ID}"),
        (f"attempt:mail/{ID}", (), ""),
        (f"mail/{ID}", EVERY_QUEUE, ""),
        ("attempt:mail/batch-1", EVERY_QUEUE, ""),
    ],
)
def test_what_an_attempt_works_on_is_told_of_a_message_alone(name, sends, message):
    principal = Principal(name=name, role=Role.PRODUCER, sends=sends)
    assert message_of(principal) == message
