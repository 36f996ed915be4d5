"""Tokens of attempts on disk: whose they are, and that a dead process stands for none."""

import json

from rq.access.attempt_tokens import AttemptTokens, of_attempt
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
