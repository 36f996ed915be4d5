"""A wrong argument of a job's own is one sentence: what it is called, what it was, what it may be."""

import inspect
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from rq.errors import BadInput
from rq.scripts.pipe import Verb
from rq.spark import arguments, jobs
from rq.spark.given import Batch, Given
from rq.spark.job_file import job
from rq.spark.work import Work


class Frame:
    """A table of something else."""

    columns = ("n",)

    def __repr__(self):
        raise AssertionError("it was read to be shown")


class Nowhere:
    """The outlet of a job that comes to no table and says nothing."""

    def failed(self, _q):
        pass


OWN = {"check", "figures", "find_bad", "keep_schemas"}  # what RQ calls, and no job
# What of a DataFrame is looked at before an engine is.
T = SimpleNamespace(columns=("n", "line"), toArrow=None)
FRAME = f"<{Frame.__module__}.Frame>"
NO_TABLE = " is not a DataFrame of this job"
NO_TEXT = " is not text"
NO_FLAG = " is not True or False"
NO_COLUMNS = " is not the name of a column, or a list of some"
# By function: how it is called, and what is said behind its name.
WRONG = {
    "lines": [
        ((), {"select": 7}, "'select' is not known; these are: allow_empty"),
        (("yes",), {}, f"allow_empty='yes'{NO_FLAG}"),
        ((True, 1), {}, "too many positional arguments; it takes allow_empty"),
        ((True,), {"allow_empty": True}, "multiple values for argument 'allow_empty'"),
    ],
    "csv": [
        ((), {"one_of": 5}, "'one_of' is not known; these are: schema, only, "),
        ((5,), {}, f"schema=5{NO_TEXT}"),
        ((["a text"],), {}, f"schema=['a text']{NO_TEXT}"),
        (("a text", None), {}, f"only=None{NO_TEXT}"),
        ((), {"most_rescued": "x"}, "most_rescued='x' is not 0 to 1"),
        ((), {"most_rescued": True}, "most_rescued=True is not 0 to 1"),
        ((), {"header": "no"}, f"header='no'{NO_FLAG}"),
        ((), {"header": 1}, f"header=1{NO_FLAG}"),
        ((), {"delimiter": 5}, f"delimiter=5{NO_TEXT}"),
        ((), {"quote": None}, f"quote=None{NO_TEXT}"),
        ((), {"encoding": b"x"}, f"encoding=b'x'{NO_TEXT}"),
        ((), {"null": 0}, f"null=0{NO_TEXT}"),
        ((), {"sep": ";"}, "'sep' is not known; these are: schema, only, "),
        (
            ("a text", "*", None, False, ";"),
            {},
            "too many positional arguments; it takes schema, only, most_rescued, "
            "allow_empty, header=, delimiter=",
        ),
    ],
    "json": [
        (({"id": "long"},), {}, f"schema={{'id': 'long'}}{NO_TEXT}"),
        ((), {"header": True}, "'header' is not known; these are: schema, only, "),
        ((), {"most_rescued": float("nan")}, "most_rescued=nan is not 0 to 1"),
        ((), {"allow_empty": 0}, f"allow_empty=0{NO_FLAG}"),
    ],
    "parquet": [
        ((), {"most_rescued": 0.5}, "'most_rescued' is not known; these are: schema, "),
        ((), {"only": ["a", "b"]}, f"only=['a', 'b']{NO_TEXT}"),
    ],
    "parse": [
        ((), {}, "missing a required argument: 'lines'; it takes lines, form, most_"),
        (("combined", T), {}, f"lines='combined'{NO_TABLE}"),
        ((T, 5), {}, f"form=5{NO_TEXT}"),
        ((T, "x", -1), {}, "most_rejects=-1 is not 0 to 1, nor None"),
    ],
    "since_last": [((7,), {}, f"name=7{NO_TEXT}")],
    "expect": [
        ((), {"most_rescued": "x"}, "missing a required argument: 'table'; it takes"),
        ((T,), {"most_rescued": "x"}, "most_rescued='x' is not 0 to 1"),
        ((T,), {"most_replaced": 2}, "most_replaced=2 is not 0 to 1"),
        ((T,), {"most_rejects": None}, "most_rejects=None is not 0 to 1"),
        ((T, "10"), {}, "rows='10' is not a whole number, 0 or more"),
        ((T, 0.5), {}, "rows=0.5 is not a whole number, 0 or more"),
        ((T, -1), {}, "rows=-1 is not a whole number, 0 or more"),
        ((T, float("inf")), {}, "rows=inf is not a whole number, 0 or more"),
        ((T,), {"not_null": 5}, f"not_null=5{NO_COLUMNS}"),
        ((T,), {"unique": ["n", 5]}, f"unique=['n', 5]{NO_COLUMNS}"),
        ((T,), {"unique": b"n"}, f"unique=b'n'{NO_COLUMNS}"),
        ((Frame(),), {}, f"table={FRAME}{NO_TABLE}"),
    ],
    "run": [((5,), {}, f"text=5{NO_TEXT}")],
    "attach": [
        ((5, "x.csv"), {}, "result=5 is not a DataFrame of this job, text, bytes or a"),
        (
            (Frame(), "x.csv"),
            {},
            f"result={FRAME} is not a DataFrame of this job, text",
        ),
        ((T, Path("x.csv")), {}, "name=PosixPath('x.csv') is not text"),
        ((T, "x.csv", "1"), {}, "at_least='1' is not a whole number, 0 or more"),
    ],
    "write": [
        ((T, Path("/data")), {}, "where=PosixPath('/data') is not text"),
        ((T, "/data", 5), {}, f"by=5{NO_COLUMNS}"),
        ((T, "/data"), {"mode": "append"}, "'mode' is not known; these are: table, "),
        (("/data", T), {}, f"table='/data'{NO_TABLE}"),
    ],
    "table_of": [((None,), {}, f"name=None{NO_TEXT}")],
    "contract": [
        ((5, {}), {}, f"name=5{NO_TEXT}"),
        (("x", ["a"]), {}, "columns=['a'] is not a dict of names of columns, and what"),
        (("x", {5: "int"}), {}, "columns={5: 'int'} is not a dict of names of columns"),
        (
            ("x", {"a": 3}),
            {},
            "a=3 is not text such as 'long not null', or a dict of type, not_null, least, "
            "most, one_of",
        ),
        (("x", {"a": {"type": int}}), {}, f"'a': type=<builtins.type>{NO_TEXT}"),
        (("x", {"a": {"not_null": 1}}), {}, f"'a': not_null=1{NO_FLAG}"),
        (("x", {"a": {"one_of": 5}}), {}, "'a': one_of=5 is not a list of values"),
        (("x", {"a": {5: 5}}), {}, "'a': 5 is not known; these are: type, not_null"),
        (("x", {}, 5), {}, f"unique=5{NO_COLUMNS}"),
        (("x", {}), {"most_rejects": "1 %"}, "most_rejects='1 %' is not 0 to 1"),
    ],
    "table": [
        ((T, 5), {}, f"name=5{NO_TEXT}"),
        (("orders", T), {}, f"table='orders'{NO_TABLE}"),
        ((T, "orders"), {"by": {"day": 1, 2: 3}}, f"by={{'day': 1, 2: 3}}{NO_COLUMNS}"),
        ((T, "orders"), {"mode": ["merge"]}, f"mode=['merge']{NO_TEXT}"),
        ((T, "orders"), {"evolve": True}, f"evolve=True{NO_TEXT}"),
        ((T, "orders"), {"key": 1}, f"key=1{NO_COLUMNS}"),
        ((T, "orders"), {"order": ["n"]}, f"order=['n']{NO_TEXT}"),
        (
            (T, "orders"),
            {"ordre": "n"},
            "'ordre' is not known; these are: table, name,",
        ),
        (
            (T, "orders", "n", "merge"),
            {},
            "too many positional arguments; it takes table",
        ),
    ],
    "send": [
        (
            (),
            {},
            "missing a required argument: 'dest'; it takes dest, param1=, param2=",
        ),
        ((5,), {}, f"dest=5{NO_TEXT}"),
        (
            ("x",),
            {"param1": Path("/a")},
            "param1=PosixPath('/a') is not what JSON holds",
        ),
        (("x",), {"param1": "\udcff"}, r"param1='\udcff' is not what JSON holds"),
        (("x",), {"param2": [{1}]}, "param2=[{1}] is not what JSON holds"),
        (("x",), {"param2": math.nan}, "param2=nan is not what JSON holds"),
        (("x",), {"param2": {"a": -math.inf}}, "param2={'a': -inf} is not what JSON"),
        (("x",), {"priority": 5}, "'priority' is not known; these are: dest, param1, "),
    ],
    "err": [
        ((5, "why"), {}, "ids=5 is not the id of a message, or a list of some"),
        (([5], "why"), {}, "ids=[5] is not the id of a message, or a list of some"),
        ((iter([5]), "why"), {}, "ids=[5] is not the id of a message, or a list of"),
        (([], ValueError("why")), {}, f"why=<builtins.ValueError>{NO_TEXT}"),
        (("m",), {}, "missing a required argument: 'why'; it takes ids, why"),
    ],
    "resend": [
        (
            ("m", None, "why"),
            {},
            "delay=None is not a delay: say 30, 30s, 5m, 2h or 1d",
        ),
        (("m", -5, "why"), {}, "delay=-5 is not a delay"),
        (("m", "999999d", "why"), {}, "delay='999999d' is not a delay"),
        (("m", 10**400, "why"), {}, f"delay={10**400!r:.10}"),
        (("m", 10**5000, "why"), {}, "delay=<builtins.int> is not a delay"),
        (("m", True, "why"), {}, "delay=True is not a delay"),
        (
            (None, 5, "why"),
            {},
            "ids=None is not the id of a message, or a list of some",
        ),
        (("m", 5, 5), {}, f"why=5{NO_TEXT}"),
    ],
}
CASES = [(verb, *case) for verb, cases in WRONG.items() for case in cases]


@pytest.fixture
def q(tmp_path):
    message = Given("m", tmp_path)
    return Work(Batch("b", "logs", (message,)), Nowhere(), [message])


@pytest.mark.parametrize(("verb", "values", "named", "sentence"), CASES)
def test_a_wrong_argument_is_one_sentence(q, verb, values, named, sentence):
    with pytest.raises(BadInput) as refused:
        getattr(q, verb)(*values, **named)
    text = str(refused.value)
    assert text.startswith(f"q.{verb}: {sentence}")
    assert len(text) < 300
    # Which is all that the message says, and not tried again.
    assert jobs.verdict(refused.value) == (Verb.ERR, text)
    assert not any([q.letters, q.endings, q.writes.is_any])


def test_each_function_of_a_job_is_in_the_table_with_all_that_it_takes():
    functions = {
        name: function
        for name, function in inspect.getmembers(Work, inspect.isfunction)
        if not name.startswith("_") and name not in OWN
    }
    assert functions.keys() == arguments.TAKEN.keys() == WRONG.keys()
    for name, function in functions.items():
        assert {*taken(function)} == {*arguments.TAKEN[name]}, name


def taken(function):
    """Give what a function takes: of what it collects, the names that its type has."""
    _, *parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter.name
        elif parameter.name == "fields":
            yield from arguments.FIELDS
        else:
            collected = {"how": ("HowCsv", "How"), "most": ("Most",)}[parameter.name]
            [kind] = [k for k in collected if parameter.annotation == f"Unpack[{k}]"]
            yield from inspect.unwrap(function).__globals__[kind].__annotations__


def test_what_comes_once_is_kept(q):
    q.err((message.msg_id for message in q.messages), "why")
    assert q.endings == {"m": (Verb.ERR, "why")}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"master": 5}, "@job: master=5 is not text, nor None"),
        (
            {"conf": "x"},
            "@job: conf='x' is not a dict of Spark's settings, by name, nor None",
        ),
        ({"engine": ["duckdb"]}, "@job: engine=['duckdb'] is not text, nor None"),
    ],
)
def test_what_a_job_runs_on_is_looked_at_too(how, sentence):
    with pytest.raises(BadInput) as refused:
        job(**how)(print)
    assert str(refused.value) == sentence
