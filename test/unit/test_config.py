"""Config files: what is taken, and the one sentence for what is not."""

from pathlib import Path

import pytest

from rq.config import queue_config, read_json, root_config
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import BadConfig

MAIN = {"host": "h", "port": 3333}
PATH = Path("/r/config.json")


def main(**changes):
    return root_config({**MAIN, **changes}, PATH)


def queue(**changes):
    return queue_config({"script": "./run", **changes}, PATH)


def refused(make, **changes):
    with pytest.raises(BadConfig) as caught:
        make(**changes)
    text = str(caught.value)
    assert text.startswith(str(PATH))
    assert len(text) < 250
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("make", "key", "meant"),
    [
        (queue, "num_worker", "num_workers"),
        (queue, "coalesce_parms", "coalesce_params"),
        (queue, "scrip", "script"),
        (main, "hots", "host"),
        (main, "relativeroot", "relative_root"),
    ],
)
def test_an_unknown_key_is_an_error_that_suggests_the_right_one(make, key, meant):
    assert f"did you mean '{meant}'?" in refused(make, **{key: 1})


def test_an_unknown_key_like_no_other_is_named():
    assert "unknown key 'zzz'" in refused(queue, zzz=1)


@pytest.mark.parametrize(
    ("read", "data", "key"),
    [
        (root_config, {"port": 1}, "host"),
        (root_config, {"host": "h"}, "port"),
        (queue_config, {}, "script"),
        (queue_config, {"script": ""}, "script"),
        (queue_config, {"script": None}, "script"),
    ],
)
def test_a_missing_mandatory_key_is_one_sentence(read, data, key):
    with pytest.raises(BadConfig) as caught:
        read(data, PATH)
    told = str(caught.value)
    assert told.startswith(f"{PATH}: the mandatory key {key!r} is missing")
    assert ('"pull": {}' in told) == (key == "script")  # the other way out


@pytest.mark.parametrize(
    ("make", "key", "written", "read"),
    [
        (main, "port", "3333", 3333),
        (main, "port", " 3333 ", 3333),
        (main, "grace", "2.5", 2.5),
        (main, "grace", "2s", 2.0),
        (queue, "worker_seconds", "1h30m", 5400.0),
        (main, "allow_new_queue", "true", True),
        (main, "allow_new_queue", "0", False),
        (main, "allow_new_queue", 1, True),
        (main, "tmpdir", None, None),
        (main, "relative_root", "/", "/"),
        (main, "relative_root", "/rq", "/rq/"),
        (main, "relative_root", "/rq/", "/rq/"),
        (main, "relative_root", "//rq///", "/rq/"),
        (main, "relative_root", "/a/b", "/a/b/"),
        (queue, "num_workers", "4", 4),
        (queue, "num_workers", None, 1),
        (queue, "num_workers", 0, 0),
        (queue, "nice", "-5", -5),
        (queue, "coalesce_params", ["2", 1, 2], (1, 2)),
        (queue, "coalesce_params", [], ()),
        (queue, "exec_prefix", "", ""),
        (queue, "exec_prefix", None, "bash -lc "),
        (queue, "env_vars", {"A": 1}, {"A": "1"}),
    ],
)
def test_what_the_ancestors_files_hold_is_understood(make, key, written, read):
    assert getattr(make(**{key: written}), key) == read


@pytest.mark.parametrize(
    ("make", "key", "value"),
    [
        (main, "port", 0),
        (main, "port", 65536),
        (main, "port", "x"),
        (main, "port", "\u00b2"),
        (main, "port", True),
        (main, "port", 3.5),
        (main, "host", 7),
        (main, "host", "a\0b"),
        (main, "relative_root", "rq"),
        (main, "grace", -1),
        (main, "grace", "nan"),
        (main, "grace", []),
        (main, "allow_new_queue", "perhaps"),
        (main, "allowed_ips", "1.2.3.4"),
        (main, "basic_auth", []),
        (main, "tmpdir", "/no/such/directory"),
        (queue, "num_workers", -1),
        (queue, "num_workers", "many"),
        (queue, "num_workers", 10**9),
        (queue, "nice", 20),
        (queue, "coalesce_params", "1"),
        (queue, "coalesce_params", [5]),
        (queue, "coalesce_params", [{}]),
        (queue, "exec_prefix", "bash 'unclosed"),
        (queue, "exec_prefix", 7),
        (queue, "env_vars", []),
        (queue, "env_vars", {"A=B": "x"}),
        (queue, "env_vars", {"": "x"}),
        (queue, "env_vars", {"A": "x\0"}),
        (queue, "env_vars", {"A": ["x"]}),
        (queue, "clone", "steal"),
        (queue, "leave_children", []),
    ],
)
def test_a_wrong_value_is_one_sentence_with_its_key(make, key, value):
    assert key in refused(make, **{key: value})


@pytest.mark.parametrize("truth", [True, "true", "yes", "1", 1])
def test_the_old_way_to_coalesce_is_understood(truth):
    old = {"coalesce": truth, "coalesce_param1": truth, "coalesce_param3": "1"}
    assert queue(**old, coalesce_param2="no").coalesce_params == (1, 3)


def test_the_old_way_to_coalesce_is_off_when_it_says_so():
    assert queue(coalesce="no", coalesce_param1="1").coalesce_params == ()


def test_keys_of_old_files_that_mean_nothing_any_more_are_ignored():
    assert queue(schedule="x", url="y", admin_status="UP") == queue()


def test_a_queue_shows_the_keys_of_the_ancestor_and_what_is_not_default():
    shown = queue(nice=5, name="q").to_json()
    assert shown.pop("nice") == 5
    assert list(shown) == [
        "name",
        "script",
        "num_workers",
        "exec_prefix",
        "env_vars",
        "coalesce_params",
        "blocking_params",
    ]


def test_what_is_shown_can_be_read_again():
    made = queue(coalesce_params=[1], env_vars={"A": "b"}, clone="copy", nice=3)
    assert queue_config(made.to_json(), PATH) == made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "is missing"),
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path, text, reason):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(BadConfig, match=reason) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_defaults_are_safe():
    assert RootConfig().addr == "127.0.0.1"
    assert RootConfig().allow_new_queue is False
    assert QueueConfig().num_workers == 1


def test_a_full_id_holds_the_relative_root():
    assert main(relative_root="/rq").full_id("q", "1") == "http://h:3333/rq/q/q/1"


def test_retention_is_said_in_part_and_the_rest_stays_as_it_was():
    kept = queue(retention={"done": {"days": 1.5}, "dismissed": None}).retention
    assert kept == {
        "done": {"days": 1.5},
        "relayed": {"days": 7},
        "dismissed": {},
        "history": {"days": 35},
    }


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"err": {"days": 1}}, "'err' is not one of done, relayed, dismissed"),
        ({"done": {"weeks": 1}}, "'weeks' is not one of days, count, bytes"),
        ({"done": {"days": -1}}, "days: -1 is not a number from 0 up"),
        ({"done": {"days": True}}, "days: True is not a number"),
        ({"history": {"count": 3}}, "history is kept by days and bytes"),
        ({"done": 7}, "it is not a JSON object"),
    ],
)
def test_retention_that_cannot_be_meant_is_told(said, text):
    assert text in refused(queue, retention=said)


@pytest.mark.parametrize(
    ("make", "key", "value", "told"),
    [
        (main, "grace", "ten", "'ten' is not a number of seconds"),
        (main, "grace", [], "[] is not a number of seconds"),
        (main, "grace", True, "True is not a number of seconds"),
        (queue, "num_workers", "--5", "'--5' is not a whole number"),
        (queue, "num_workers", "\u00b2", "'\u00b2' is not a whole number"),
        (queue, "num_workers", "9" * 5000, "is not a whole number"),
        (
            queue,
            "batch",
            {"max": 1, "wait": "soon"},
            "'soon' is not a number of seconds, as 90",
        ),
    ],
)
def test_a_number_that_is_none_is_refused_in_our_words(make, key, value, told):
    assert told in refused(make, **{key: value})


# ---- batches


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({}, {}),
        ({"max": 500}, {"max": 500, "wait": 60.0}),
        ({"max": "7", "wait": 0}, {"max": 7, "wait": 0.0}),
        ({"max": 7, "wait": "90s"}, {"max": 7, "wait": 90.0}),
        ({"max": 7, "wait": "5m"}, {"max": 7, "wait": 300.0}),
        ({"max": 7, "wait": "1h"}, {"max": 7, "wait": 3600.0}),
        ({"max": 7, "wait": "1h30m"}, {"max": 7, "wait": 5400.0}),
        (
            {"max": 7, "wait": 1.5, "by": "param1", "complete": "param2"},
            {"max": 7, "wait": 1.5, "by": "param1", "complete": "param2"},
        ),
        ({"max": 7, "by": None, "complete": ""}, {"max": 7, "wait": 60.0}),
    ],
)
def test_batches_are_read_whole_and_can_be_read_again(said, read):
    found = queue(batch=said)
    assert found.batch == read
    assert queue(**found.to_json()) == found


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ([], "it is not a JSON object"),
        ({"wait": 5}, "it lacks max"),
        ({"max": 0}, "0 is not between 1 and 10000"),
        ({"max": 10_001}, "10001 is not between"),
        ({"max": 5, "most": 6}, "'most' is not one of max, wait, by, complete"),
        ({"max": 5, "wait": "2d"}, "'2d'"),
        ({"max": 5, "wait": "\u00b2m"}, "\u00b2m"),
        ({"max": 5, "wait": "25h"}, "'25h' is not between 0 and 86400 seconds"),
        ({"max": 5, "by": "param5"}, "'param5' is not one of param1 to param4"),
        ({"max": 5, "by": ["param1"]}, "is not one of param1 to param4"),
        ({"max": 5, "complete": "param2"}, "it needs by"),
    ],
)
def test_batches_that_cannot_be_meant_are_told(said, text):
    told = refused(queue, batch=said)
    assert "batch: " in told
    assert text in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coalesce_params", [1]),
        ("blocking_params", [2]),
        ("pull", {}),
    ],
)
def test_a_queue_has_batches_or_what_they_do_not_go_with(name, value):
    told = refused(queue, batch={"max": 5}, **{name: value})
    assert f"a queue has batch or {name}, not both" in told
    assert queue(batch={}, **{name: value}).batch == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", {"max": 5}),
        ("spark", {"master": "spark://h:7077"}),
    ],
)
def test_the_exit_status_speaks_for_scripts_of_one_message_alone(name, value):
    told = refused(queue, success="exit", **{name: value})
    assert 'success is "exit" for scripts of one message' in told
    assert f"with {name} they have to say" in told
    assert queue(success="word", **{name: value}).success == "word"
    assert queue(success="exit").to_json()["success"] == "exit"


@pytest.mark.parametrize("value", ["exits", "", True, 0, ["exit"]])
def test_what_says_how_a_script_ended_is_a_word_or_its_exit(value):
    assert "neither 'word' nor 'exit'" in refused(queue, success=value)


def test_where_jobs_on_spark_run_is_checked():
    said = {"master": "spark://h:7077", "conf": {"spark.executor.cores": 2}}
    known = {"master": "spark://h:7077", "conf": {"spark.executor.cores": "2"}}
    assert queue(spark=said).spark == known
    assert queue(spark={}).spark == {}
    said_of = refused(queue, spark={"master": "sc://h:15002"})
    assert "sc:// is Spark Connect, where a job has no driver of its own" in said_of
    said = {"engine": "duckdb", "memory": "2GB", "threads": 4}
    assert queue(spark=said).spark == said
    for wrong in (
        {"mastre": "local"},
        {"master": 7},
        {"conf": {"executor.cores": "2"}},
        {"conf": {"spark.x": ["a"]}},
        {"engine": "dukdb"},
        {"memory": "2"},
        {"memory": 2},
        {"memory": "1GB; SET x"},
        {"threads": 0},
        "local[2]",
    ):
        assert "spark" in refused(queue, spark=wrong)


# ---- leases


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({}, {}),
        ({"max": 100_000, "seconds": 86_400}, {"max": 100_000, "seconds": 86_400}),
        ({"max": "5", "seconds": 1}, {"max": 5, "seconds": 1}),
        (
            {"share_script": "yes", "fetch": False},
            {"share_script": True, "fetch": False},
        ),
        (
            {"result_files": 0, "result_bytes": 5},
            {"result_files": 0, "result_bytes": 5},
        ),
    ],
)
def test_leases_are_read_whole_and_can_be_read_again(said, read):
    found = queue(pull=said)
    default = {
        "max": 1000, "seconds": 60, "share_script": False, "fetch": True,
        "result_files": 100, "result_bytes": 1024**3,
    }  # fmt: skip
    assert found.pull == {**default, **read}
    assert queue_config(found.to_json(), PATH).pull == found.pull


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (True, "pull: it is not a JSON object"),
        (
            {"mx": 5},
            "pull: 'mx' is not one of max, seconds, share_script, fetch, result_",
        ),
        ({"max": 0}, "pull: max: 0 is not between 1 and 100000"),
        ({"max": 100_001}, "pull: max: 100001 is not between"),
        ({"seconds": 0}, "pull: seconds: 0 is not between 1 and 86400"),
        ({"seconds": 1.5}, "pull: seconds: 1.5 is not a whole number"),
        ({"share_script": "perhaps"}, "pull: share_script: 'perhaps' is not true"),
        ({"result_files": 101}, "pull: result_files: 101 is not between 0 and 100"),
        ({"result_bytes": -1}, "pull: result_bytes: -1 is not between 0 and"),
        ({"fetch": 2}, "pull: fetch: 2 is not true or false"),
    ],
)
def test_leases_that_cannot_be_meant_are_told(said, text):
    assert text in refused(queue, pull=said)


def test_without_pull_a_queue_leases_nothing():
    assert queue().pull is None
    assert queue(pull=None).pull is None


def test_a_queue_without_a_script_has_workers_elsewhere_and_no_slots():
    found = queue_config({"pull": {}, "num_workers": 4}, PATH)
    assert (found.script, found.num_workers) == ("", 0)
    assert queue_config(found.to_json(), PATH) == found
    assert queue(pull={}, num_workers=4).num_workers == 4
