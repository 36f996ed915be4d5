"""What those who are no admins see of addresses that are told how a message has ended."""

import pytest

from rq.config import secrets
from rq.config.secrets import below_admin

MANY = 3000


@pytest.fixture
def calls(monkeypatch):
    """Count how often a text is searched for addresses."""
    made = []
    host_only = secrets.host_only

    def counted(text):
        made.append(text)
        assert len(made) <= 50 * MANY, "each address is looked for in each text"
        return host_only(text)

    monkeypatch.setattr(secrets, "host_only", counted)
    return made


def hook(number):
    return f"https://h/T{number}/x"


def test_each_message_of_a_list_hides_its_own_addresses(calls):
    rows = [
        {"post_run_webhook": [hook(n)], "status": f"err - no {hook(n)}"}
        for n in range(MANY)
    ]
    shown = below_admin({"messages": rows}, "q")["messages"]
    assert {row["status"] for row in shown} == {"err - no https://h/(hidden)"}


def test_what_a_sender_writes_into_a_param_makes_no_look_at_it_long(calls):
    param = {"post_run_webhook": [hook(n) for n in range(MANY)]}
    shown = below_admin({"param1": param, "param2": ["x"] * MANY}, "q")
    assert shown["param2"] == ["x"] * MANY
    assert set(shown["param1"]["post_run_webhook"]) == {"https://h/(hidden)"}


def test_an_address_is_hidden_wherever_else_an_answer_quotes_it():
    within = {"post_run_webhook": hook(1), "status": f"err - no {hook(1)}/more"}
    shown = below_admin({"text": f"no {hook(1)}", "message": within}, "q")
    assert "/T1" not in str(shown)
