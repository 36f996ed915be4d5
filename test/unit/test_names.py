"""What may become part of a path, and ids that are never given twice."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq import names
from rq.errors import BadInput
from rq.layout import QueueDir, folder
from rq.names import IdSource
from rq.words.states import State

NO_FILE = [
    "",
    ".",
    "..",
    "../x",
    "x/../../y",
    "/etc/passwd",
    "x/y",
    "x\\y",
    "a\0b",
    "a\nb",
    "a\n",
    "\na",
    "-rf",
    "--",
    ".up-1",
    "a\u2028b",
    "a\u202eb",  # text that runs the other way
    "a\u2066b",
    "\u200fa",
    "a\x7f",
    "a\x85b",
    "a\x1b[31m",
    "a\udcffb",  # a byte that is no UTF-8
    "x" * 256,
    None,
    7,
    b"q",
    ["q"],
    {"q": 1},
    True,
]
OF_OTHER_SYSTEMS = [
    "~",
    "*",
    "?",
    "[a]",
    "a;b",
    "a|b",
    "a`b`",
    "$(x)",
    "a&b",
    "a'b",
    'a"b',
    "a<b>",
    "a%00b",
    "\u2024\u2024",  # one dot leaders
    "a\uff0fb",  # a full-width slash
    "a\u2215b",  # a division slash
    " a ",
    "draft #2 100%?.txt",
    "u\u0308ber.txt",  # decomposed, as one file system keeps it
    "\U0001f468\u200d\U0001f469\u200d\U0001f467.png",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt",
]
ID = "20270115.0800.00.000.1"
HOSTILE_IDS = [
    "*",
    "2027*",
    "..20270115.0800.00.000.1",
    "../" + ID,
    ID + "/",
    ID + "/..",
    ID + "\n",
    ID + "\0",
    " " + ID,
    ID.replace(".", ","),
    ID[1:],
    ID + "x",
    "20270115.0800.00.000.",
    "20270115.0800.00.000.-1",
    "20270115.0800.00.000." + "1" * 21,
    ID.replace("2", "\u0662"),  # arabic-indic digits
    ID.replace("1", "\uff11"),  # full-width digits
    ID.replace("1", "\u00b9"),  # superscripts
]


@pytest.mark.parametrize("text", NO_FILE)
def test_a_hostile_name_is_refused_everywhere(text):
    for check in (names.queue_name, names.attachment, names.msg_id):
        with pytest.raises(BadInput):
            check(text)


@pytest.mark.parametrize("text", OF_OTHER_SYSTEMS)
def test_a_file_may_be_called_what_other_systems_call_it(text):
    assert names.attachment(text) == text
    assert not names.is_ancestors_attachment(text)
    for check in (names.queue_name, names.msg_id):
        with pytest.raises(BadInput):
            check(text)


@pytest.mark.parametrize("text", HOSTILE_IDS)
def test_a_hostile_id_is_refused(text):
    with pytest.raises(BadInput):
        names.msg_id(text)
    assert not names.is_msg_id(text)


@pytest.mark.parametrize("text", ["q\u0430", "\u00e9t\u00e9", "\uff51", "a.b", "a b"])
def test_a_queue_name_is_plain_ascii(text):
    with pytest.raises(BadInput):
        names.queue_name(text)


@given(st.text(max_size=300))
def test_an_allowed_name_stays_in_its_directory(text):
    for check in (names.queue_name, names.attachment, names.msg_id):
        try:
            allowed = check(text)
        except BadInput:
            continue
        assert "/" not in allowed
        assert "\0" not in allowed
        assert not allowed.startswith((".", "-"))
        assert 0 < len(f".{allowed}.tmp".encode()) <= 255


def test_a_refusal_is_one_short_line_whatever_was_asked():
    with pytest.raises(BadInput) as caught:
        names.queue_name("x\n\x1b[31m" * 1000)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["q", "_q", "Q-1", "x" * 128, "0"])
def test_an_ordinary_queue_name_is_taken(text):
    assert names.queue_name(text) == text
    assert names.is_queue_name(text)


@pytest.mark.parametrize(
    "text", ["a.txt", "my file (1).pdf", "\u00fcber.txt", "x" * 250, "a,b=c+d@e-f"]
)
def test_an_ordinary_attachment_name_is_taken(text):
    assert names.attachment(text) == text


def test_an_attachment_name_is_measured_in_bytes():
    with pytest.raises(BadInput, match="250 bytes"):
        names.attachment("\u00fc" * 126)


def test_the_id_of_an_acknowledged_error_loses_its_dot():
    assert names.msg_id("." + ID) == ID


def test_an_id_tells_when_it_was_made():
    assert names.created("19700101.0000.01.500.9") == 1.5
    assert names.created("99999999.9999.99.999.1") == 0.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"q/{ID}", ("q", ID)),
        (f"q/q/{ID}", ("q", ID)),
        (f"http://h:3333/q/jobs/{ID}", ("jobs", ID)),
        (f"http://h:3333/any/where/q/jobs/{ID}/", ("jobs", ID)),
        (f"https://h/q/jobs/.{ID}", ("jobs", ID)),
        ("http://h/q/jobs", ("jobs", None)),
        ("jobs", ("jobs", None)),
    ],
)
def test_a_url_names_a_queue_and_a_message(text, found):
    assert names.split_url(text) == found


@pytest.mark.parametrize(
    ("dest", "remote"),
    [
        ("http://h:3333/q/x", True),
        ("https://h/q/x", True),
        ("httpd", False),
        ("http:/x", False),
        ("http://", False),
        ("ftp://h/q/x", False),
        ("x", False),
    ],
)
def test_only_http_and_https_are_remote(dest, remote):
    assert names.is_remote(dest) is remote


jumps = st.lists(
    st.tuples(
        st.floats(min_value=-1e6, max_value=1e6, allow_nan=False),
        st.sampled_from([1, 2, 999, 1001]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(jumps)
def test_no_id_is_given_twice_whatever_clock_and_restarts_do(jumps):
    now, last_start = 1.8e9, 0
    start = last_start = max(last_start + 1, int(now))
    source, seen = IdSource(start), set()
    for jump, number, restart in jumps:
        now += jump
        if restart:
            start = last_start = max(last_start + 1, int(now))
            source = IdSource(start)
        given_now = [source.next(now) for _ in range(number)]
        assert all(names.is_msg_id(one) for one in given_now)
        assert not seen.intersection(given_now)
        seen.update(given_now)
    assert len(seen) == sum(number for _, number, _ in jumps)


def test_the_time_in_an_id_never_goes_back():
    source = IdSource(7)
    moments = [source.next(now)[:21] for now in (100.0, 50.0, 99.999, 100.001, 0.0)]
    assert moments == sorted(moments)


def test_ids_have_the_shape_of_the_ancestor():
    shape = re.compile(r"\d{8}\.\d{4}\.\d{2}\.\d{3}\.\d+")
    assert shape.fullmatch(IdSource(1_800_000_000).next(1.8e9))


@pytest.mark.parametrize("state", sorted(State))
def test_the_folder_of_an_id_lies_in_the_queue(tmp_path, state):
    path = QueueDir(tmp_path).message(state, ID)
    assert tmp_path in path.parents
    assert ".." not in folder(state, ID).split("/")


def test_what_has_ended_is_hashed_by_its_creation():
    assert folder(State.DONE, ID) == f"done/20270115/08/00/{ID}"
    assert folder(State.RELAYED, ID) == f"relayed/20270115/08/00/{ID}"
    assert folder(State.DISMISSED, ID) == f"err/.{ID}"
