"""The setting `daily`: when and to whom a letter is sent each morning."""

import pytest

from rq.config import notices
from rq.errors import BadInput


def test_short_forms_mean_what_they_mean_of_a_queue():
    to = ["ops@example.org", "mail:root", "letters", "queue:other", "https://h/x"]
    assert notices.daily({"at": "07:00", "to": to}) == {
        "at": "07:00",
        "timezone": "",
        "to": [
            "mail:ops@example.org",
            "mail:root",
            "queue:letters",
            "queue:other",
            "https://h/x",
        ],
    }
    assert notices.daily(None) is notices.daily(False) is None


@pytest.mark.parametrize(
    "wrong",
    [
        "07:00",
        {"at": "7:00", "to": "a@b"},
        {"at": "24:00", "to": "a@b"},
        {"at": "07:00"},
        {"at": "07:00", "to": []},
        {"at": "07:00", "to": "queue:notice"},
        {"at": "07:00", "to": "mail:a b"},
        {"at": "07:00", "to": "a@b", "hour": 7},
        {"at": "07:00", "to": "a@b", "timezone": 1},
    ],
)
def test_what_names_no_time_or_no_reader_is_refused(wrong):
    with pytest.raises((ValueError, BadInput)):
        notices.daily(wrong)
