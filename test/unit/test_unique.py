"""Equal messages: what makes two of them equal, and who stands in whose way."""

import pytest

from rq.config.settings import QUEUE
from rq.queues.schedule.unique import Conflict, Holders, Rule, Scope, in_the_way, key
from rq.spool.uniques import Members


def rule(scope="queued", conflict="join", seconds=0.0, params=(1,)):
    return Rule(params, Scope(scope), Conflict(conflict), seconds)


def test_equal_params_make_equal_keys_and_a_missing_one_is_a_value():
    def of(**params):
        return key(rule(params=(1, 3)), params, None)

    assert of(param1="a") == of(param1="a", param2="other")
    assert of(param1="a") != of(param3="a")
    assert of() == of(param3=None)


def test_keys_of_other_params_are_others():
    params = {"param1": "a", "param2": "a"}
    assert key(rule(params=(1,)), params, None) != key(rule(params=(2,)), params, None)


def test_a_key_of_its_own_never_equals_params():
    params = key(rule(), {"param1": "a"}, None)
    assert key(rule(), {"param1": "a"}, params) != params
    assert key(rule(), {"param1": "a"}, "k") == key(rule(), {"param1": "b"}, "k")


def test_without_params_only_a_key_of_its_own_is_compared():
    assert key(rule(params=()), {"param1": "a"}, None) is None
    assert key(rule(params=()), {}, "k") is not None


def test_a_long_key_takes_little_memory():
    long = key(rule(), {"param1": "a" * 100_000}, None)
    assert len(long) < 50
    assert long != key(rule(), {"param1": "a" * 99_999 + "b"}, None)
    assert key(rule(), {}, "x" * 200) != key(rule(), {}, "x" * 199)


@pytest.mark.parametrize(
    ("scope", "holders", "stands"),
    [
        ("queued", Holders(waits="w"), "w"),
        ("queued", Holders(runs="r"), None),
        ("running", Holders(waits="w"), None),
        ("running", Holders(runs="r", waits="w"), "r"),
        ("both", Holders(waits="w"), "w"),
        ("both", Holders(waits="w", runs="r"), "r"),
        ("both", Holders(), None),
        ("window", Holders(last="l", last_at=95.0), "l"),
        ("window", Holders(last="l", last_at=90.0), None),
        ("window", Holders(waits="w", runs="r"), None),
    ],
)
def test_who_stands_in_the_way(scope, holders, stands):
    assert in_the_way(rule(scope, seconds=10.0), holders, 100.0) == stands


def test_members_of_a_key_stay_in_their_order():
    members = Members()
    for msg_id in "abc":
        members.add("k", msg_id)
    members.remove("k", "a")
    members.remove("k", "unknown")
    assert (members.first("k"), members.some("k", 9)) == ("b", ["b", "c"])
    for msg_id in "bc":
        members.remove("k", msg_id)
    assert (members.first("k"), members.some("k", 9)) == (None, [])


def test_one_member_is_removed_by_its_own_id_only():
    members = Members()
    members.add("k", "a")
    members.remove("k", "b")
    assert members.some("k", 9) == ["a"]


def test_the_setting_is_completed():
    assert QUEUE["unique"]({}) == {}
    assert QUEUE["unique"]({"params": [2, 1]}) == {
        "params": [1, 2],
        "scope": "queued",
        "conflict": "join",
        "seconds": 0.0,
    }
    window = QUEUE["unique"]({"scope": "window", "seconds": "10m"})
    assert (window["seconds"], window["params"]) == (600.0, [])


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ([1], "not a JSON object"),
        ({"param": [1]}, "'param' is not one of params, scope, seconds, conflict"),
        ({"params": [5]}, "not between 1 and 4"),
        ({"scope": "all"}, "scope: 'all' is not one of queued"),
        ({"conflict": "drop"}, "conflict: 'drop' is not one of join"),
        ({"scope": "window"}, "seconds and the scope window go together"),
        ({"seconds": 5}, "seconds and the scope window go together"),
        ({"scope": "window", "seconds": 9e9}, "not between 0 and 30 days"),
        ({"scope": "running", "conflict": "replace"}, "its scope is queued or both"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(setting, reason):
    with pytest.raises(ValueError, match=reason):
        QUEUE["unique"](setting)
