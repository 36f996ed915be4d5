"""A message as it is asked for, as it lies on disk, and back."""

import tracemalloc

import orjson
import pytest
from harness.spool import NOW, a_message
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import BadMessage
from rq.journal import line
from rq.message import fields as checks
from rq.message.fields import ENV_STRING_LIMIT, Attachment, param_text
from rq.message.message import MESSAGE_LIMIT, from_disk, from_request
from rq.message.table import MAX_COUNT

ID = "20270115.0800.00.000.1"
ROOM = ENV_STRING_LIMIT - len("RQ_PARAM1=") - 1


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "fields",
    [
        {"dest": None},
        {"dest": ""},
        {"dest": 7},
        {"dest": ["q"]},
        {"dest": "a\0b"},
        {"dest": "x" * 20_000},
        {"due": {}},
        {"due": []},
        {"due": True},
        {"due": "soon"},
        {"due": "nan"},
        {"due": "inf"},
        {"due": -1},
        {"due": 1e300},
        {"due": 10**400},
        {"count": "many"},
        {"count": -1},
        {"count": 1.5},
        {"count": True},
        {"count": 2**31},
        {"count": "9" * 30},
        {"count": "\u0662"},
        {"max_count": "x"},
        {"max_count": []},
        {"src": 7},
        {"src": "a\0b"},
        {"orig_msg_id": {"a": 1}},
        {"post_run_webhook": "no url"},
        {"post_run_webhook": 7},
        {"post_run_webhook": {"a": 1}},
        {"post_run_webhook": [7]},
        {"post_run_webhook": ["ftp://h/x"]},
        {"param1": "a\0b"},
        {"param1": nested(500)},
        {"colour": nested(500)},
        {"colour": 2**70},
    ],
    ids=lambda fields: repr(fields)[:50],
)
def test_a_field_of_a_wrong_type_is_refused_in_a_sentence(fields):
    with pytest.raises(BadMessage) as caught:
        a_message(**fields)
    text = str(caught.value)
    assert next(iter(fields)) in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"dups": "x"},
        {"dups": [7]},
        {"dup": 7},
        {"attempt": -1},
        {"attachments": [1]},
        {"attachments": {"../x": {"sha256": "", "md5": "", "size": 1}}},
        {"attachments": {"x": {"sha256": ""}}},
    ],
    ids=repr,
)
def test_a_field_of_the_queue_of_a_wrong_type_is_refused_when_read(fields):
    with pytest.raises(BadMessage, match=next(iter(fields))):
        from_disk(orjson.dumps({"dest": "q", **fields}), ID, NOW)


@pytest.mark.parametrize("asked", [None, [], "x", 7])
def test_a_message_is_an_object(asked):
    with pytest.raises(BadMessage):
        from_request(asked, ID, NOW, "origin")


def test_a_message_without_dest_says_what_the_ancestor_said():
    with pytest.raises(BadMessage, match='required "dest" parameter'):
        from_request({}, ID, NOW, "origin")


@pytest.mark.parametrize(
    ("field", "asked", "taken"),
    [
        ("due", "1800000000", 1.8e9),
        ("due", "1.5", 1.5),
        ("due", "", NOW),
        ("due", None, NOW),
        ("due", 0, 0.0),
        ("count", "3", 3),
        ("count", " 3 ", 3),
        ("count", " " * 20 + "3", 3),
        ("count", "", 0),
        ("max_count", "20", 20),
        ("max_count", None, MAX_COUNT),
        ("post_run_webhook", "http://a/x https://b/y", ("http://a/x", "https://b/y")),
        ("post_run_webhook", "", ()),
        ("force_remote", "0", True),
        ("force_remote", 0, False),
        ("src", "", ""),
    ],
)
def test_what_the_ancestors_clients_send_is_understood(field, asked, taken):
    assert getattr(a_message(**{field: asked}), field) == taken


@pytest.mark.parametrize("value", ["x" * ROOM, "\u00fc" * (ROOM // 2), ["x" * 1000]])
def test_a_parameter_that_fits_an_environment_is_taken(value):
    assert a_message(param1=value).params["param1"] == value


@pytest.mark.parametrize(
    "value", ["x" * (ROOM + 1), "\u00fc" * (ROOM // 2 + 1), ["x" * ROOM]]
)
def test_a_parameter_too_large_for_an_environment_names_the_limit(value):
    with pytest.raises(BadMessage, match=rf"param1 is \d+ bytes.*{ROOM}"):
        a_message(param1=value)


def test_a_message_too_large_for_a_line_names_the_limit():
    with pytest.raises(BadMessage, match=str(MESSAGE_LIMIT)):
        a_message(note="x" * MESSAGE_LIMIT).encode_new()


def test_a_message_that_was_accepted_may_grow_past_the_limit():
    message = a_message(note="x" * (MESSAGE_LIMIT - 300)).with_(dups=("x" * 300,))
    assert from_disk(message.encode(), ID, NOW) == message


def test_unknown_fields_survive():
    message = a_message(colour="red", nested={"a": [1, None]})
    assert message.extra == {"colour": "red", "nested": {"a": [1, None]}}
    assert from_disk(message.encode(), ID, NOW).extra == message.extra


def test_what_the_ancestor_left_in_its_files_is_dropped():
    stale = {
        "status": "que",
        "state": "que",
        "path": "queue/q/prep/x",
        "_attachments": {"a": {"path": "/x"}},
        "child_pid": 7,
    }
    kept = from_disk(orjson.dumps({"dest": "q", **stale}), ID, NOW).to_json()
    assert not stale.keys() & kept.keys()


def test_a_client_cannot_choose_what_belongs_to_the_queue():
    digest = {"sha256": "x", "md5": "y", "size": 1}
    asked = {"dest": "q", "msg_id": "../x", "attempt": 9, "dup": "x", "dups": ["x"]}
    message = from_request({**asked, "attachments": {"a": digest}}, ID, NOW, "origin")
    assert message.msg_id == ID
    assert message.attempt == 0
    assert message.dup is None
    assert not message.dups
    assert not message.attachments


def test_the_first_of_a_chain_is_its_own_origin():
    assert a_message().orig_msg_id.endswith(ID)
    assert a_message(orig_msg_id="http://h/q/x/1").orig_msg_id == "http://h/q/x/1"
    for absent in ("", False, 0, []):  # as clients of the ancestor may say it
        assert a_message(orig_msg_id=absent).orig_msg_id.endswith(ID)


def test_a_reason_to_hold_stays_as_short_as_it_is_read_again():
    asked = {"dest": "q", "hold": "\x01" * 500}
    message = from_request(asked, ID, NOW, "http://h/q/q/1", is_new=True)
    assert from_disk(message.encode(), ID, 0.0).held == message.held
    assert len(message.held["why"]) == 500


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'"x"', b"\0" * 64, b'{"dest":"q"', b"\xff"]
)
def test_a_torn_file_is_refused_in_a_sentence(data):
    with pytest.raises(BadMessage):
        from_disk(data, ID, NOW)


def test_a_param_is_text_or_json():
    assert param_text("a b") == "a b"
    assert param_text({"a": [1, True]}) == '{"a":[1,true]}'
    assert param_text(0) == "0"


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
plain = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1
)
asked = st.fixed_dictionaries(
    {"dest": plain},
    optional={
        "due": st.floats(0, 3e10) | st.integers(0, 2**31).map(str),
        "count": st.integers(0, 2**31 - 1) | st.integers(0, 99).map(str),
        "src": plain,
        "param1": json,
        "param4": json,
        "force_remote": st.booleans(),
        "post_run_webhook": st.just("http://h/x") | st.just(["http://h/y"]),
        "cloned_from": plain,
        "colour": json,
    },
)


@given(asked)
def test_a_message_comes_back_from_disk_as_it_was(fields):
    message = from_request(fields, ID, NOW, "origin")
    again = from_disk(message.encode(), ID, 0.0)
    assert again == message
    assert again.encode() == message.encode()


def test_attachments_and_attempts_come_back_from_disk():
    one = Attachment(sha256="a", md5="b", size=3)
    message = a_message().with_(attachments={"f.txt": one}, attempt=2, count=1)
    assert from_disk(message.encode(), ID, 0.0) == message


def test_what_is_kept_of_many_messages_is_their_json_and_little_more():
    message = a_message(param1="x" * 100)
    tracemalloc.start()
    try:
        kept = [message.encode() for _ in range(1000)]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < sum(map(len, kept)) + 200_000


@pytest.mark.parametrize("name", ["param1", "colour"])
def test_what_is_taken_can_be_written_wherever_it_is_handed_on(name):
    taken = 0
    for levels in range(230, 260):
        try:
            message = a_message(**{name: nested(levels)})
        except BadMessage:
            continue
        taken += 1
        message.encode_new()
        # As a line of the journal owes it, and as a page shows it in a list.
        line.body({"out": [{"dest": "q", "message": message.to_json()}]})
        orjson.dumps(["ok", [{"messages": [message.to_json()]}]])
    assert 0 < taken < 30


def many(count):
    return [f"http://h/{n}" for n in range(count)]


@pytest.mark.parametrize("urls", [many(21), " ".join(many(21)), many(2000)])
def test_a_message_with_more_than_twenty_urls_is_refused(urls):
    text = "post_run_webhook has [0-9]+ URLs, at most 20 are told"
    with pytest.raises(BadMessage, match=text):
        from_request({"dest": "t", "post_run_webhook": urls}, ID, 0.0, "o")
    kept = from_request({"dest": "t", "post_run_webhook": many(20)}, ID, 0.0, "o")
    assert len(kept.post_run_webhook) == 20


def test_one_that_was_accepted_before_is_cut_and_says_so():
    old = from_request({"dest": "t"}, ID, 0.0, "o").with_(
        post_run_webhook=tuple(many(2000))
    )
    for _ in range(2):
        old = from_disk(old.encode(), ID, 0.0)
        assert old.post_run_webhook == tuple(many(20))
        said = "of 2000 URLs the first 20 are told: no message may have more"
        assert old.to_json()["post_run_webhook_cut"] == said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"unique_key": ""}, "unique_key is empty"),
        ({"dest": "http://ho st/q/mail"}, "not the URL of a queue"),
        ({"dest": "https:// host/q/mail"}, "not the URL of a queue"),
        ({"dest": "http://host/q/ma\nil"}, "not the URL of a queue"),
        ({"retry": 3}, "is reserved"),
    ],
)
def test_what_a_sender_cannot_have_meant_is_refused(fields, said):
    with pytest.raises(BadMessage, match=said):
        from_request({"dest": "mail", **fields}, ID, 0.0, "", is_new=True)
    with pytest.raises(BadMessage, match=said):
        checks.check_sent(fields)
    from_request({"dest": "mail", **fields}, ID, 0.0, "")


def test_what_a_sender_may_say_is_taken():
    fields = {"dest": "http://[::1]:3333/q/mail", "unique_key": "a", "hold": True}
    message = from_request(fields, ID, 5.0, "", is_new=True)
    assert message.held == {"by": "its sender", "why": "", "since": 5.0}


def test_hold_is_a_yes_or_a_reason():
    assert checks.hold(True) == ""
    assert checks.hold("a freeze") == "a freeze"
    with pytest.raises(
        BadMessage, match="hold is 1: say true, or a text that says why"
    ):
        checks.hold(1)
