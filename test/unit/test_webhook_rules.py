"""Webhooks as rules: signatures, pauses, addresses, and which settings are meant."""

import json
from urllib.parse import parse_qs

import pytest

from rq.builtin.webhook import settings, signing
from rq.builtin.webhook.post import as_form, as_json
from rq.builtin.webhook.tries import LONGEST, PAUSES, Answer, again_after, decide
from rq.errors import BadConfig
from rq.scripts.pipe import Verb

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = signing.secret_of(bytes(range(32)))


def test_a_signature_is_that_of_the_standards_own_libraries():
    said = signing.headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [SECRET]
    )
    assert said == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_while_a_secret_is_changed_both_sign():
    both = signing.headers("a", 1, b"x", [OTHER, SECRET])["webhook-signature"]
    each = [signing.headers("a", 1, b"x", [one]) for one in (OTHER, SECRET)]
    assert both == " ".join(one["webhook-signature"] for one in each)


@pytest.mark.parametrize(
    "secret",
    ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_abcd", "whsec_!"],
)
def test_what_is_no_secret_is_refused(secret):
    with pytest.raises(BadConfig, match="a webhook secret is whsec_"):
        signing.key(secret)


# ---- what becomes of a try


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_answer_of_2xx_is_success(status):
    verb, text = decide(Answer(status=status), 3, 0.5)
    assert (verb, text.partition(" ")[0]) == (Verb.DONE, str(status))


def test_gone_ends_it_for_good():
    verb, text = decide(Answer(status=410), 0, 0.5)
    assert verb is Verb.ERR
    assert text.startswith("410 Gone: ")


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 418, 429, 500, 503])
def test_any_other_answer_is_tried_again(status):
    verb, text = decide(Answer(status=status), 0, 0.5)
    assert (verb, text.partition(" ")[0]) == (Verb.RESEND, f"5-{status}")


def test_pauses_grow_over_days_and_differ():
    told = [again_after("x", count, 0.5)[1] for count in range(12)]
    assert [int(one.partition("-")[0]) for one in told] == [*PAUSES, *[86400] * 3]
    assert again_after("x", 1, 0.0)[1] == "270-x"
    assert again_after("x", 1, 1.0)[1] == "330-x"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("120", 120),
        ("0", 1),
        ("999999", LONGEST),
        ("Sun, 06 Nov 1994 08:51:37 GMT", 120),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 1),
        ("soon", 5),
        ("-3", 5),
        (None, 5),
    ],
)
def test_retry_after_is_honoured_when_it_can_be_read(asked, seconds):
    answer = Answer(status=503, retry_after=asked, date="Sun, 06 Nov 1994 08:49:37 GMT")
    assert decide(answer, 0, 0.5)[1] == f"{seconds}-503 Service Unavailable"


# ---- settings


@pytest.mark.parametrize(
    ("url", "prefix", "below"),
    [
        ("https://h/a/b", "https://h/a/", True),
        ("https://h/a/b", "https://h", True),
        ("https://h:443/a", "https://h/a", True),
        ("https://h/ab", "https://h/a", False),
        ("https://h.evil/a", "https://h", False),
        ("http://h/a", "https://h/", False),
        ("https://h:8443/a", "https://h/", False),
        ("https://u@h/a", "https://h/", True),
    ],
)
def test_settings_are_meant_for_what_lies_below_their_url(url, prefix, below):
    assert settings.lies_below(url, prefix) is below


# ---- bodies

TOLD = {
    "msg_id": "http://h:3333/q/t/1",
    "id": "1",
    "state": "err",
    "param1": "a b",
    "orig_msg_id": "http://h:3333/q/t/1",
    "times": {"ended": "2026-01-02T03:04:05.006Z"},
}


def test_the_body_says_what_when_and_all():
    kind, data = as_json(TOLD)
    assert kind == "application/json"
    assert json.loads(data) == {
        "type": "message.err",
        "timestamp": "2026-01-02T03:04:05.006Z",
        "data": TOLD,
    }


def test_the_form_is_the_ancestors():
    kind, data = as_form(TOLD, "http://h:3333/q/x/new_message")
    form = parse_qs(data.decode())
    assert kind == "application/x-www-form-urlencoded"
    assert form["x_format"] == ["json"]
    assert json.loads(form["mesg"][0]) == {
        "param1": "a b",
        "orig_msg_id": "http://h:3333/q/t/1",
        "dest": "/q/x",
    }
