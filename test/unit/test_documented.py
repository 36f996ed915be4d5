"""The reference tells all that strangers can say and see, and nothing that is not there."""

import json
import pkgutil
import re
import tomllib
from dataclasses import MISSING, fields

import pytest
from harness import documents
from harness.checkout import CHECKOUT
from harness.documents import GUIDE, PAGES, REFERENCE, WORD
from harness.tables import MADE

from rq import cli, names
from rq.config.settings import QueueConfig, RootConfig, default_worker_env
from rq.journal.line import Note as JournalNote
from rq.message.causes import Cause
from rq.message.message import MESSAGE_LIMIT, Message
from rq.message.table import LIMITS, PARAMS
from rq.queues.control import connection, connections
from rq.rpc import wire
from rq.rpc.lines.commands import COMMANDS, Answered
from rq.scripts import environment, pipe
from rq.scripts.pipe import Verb
from rq.spool import status
from rq.supervisor.children import Kind
from rq.supervisor.commands import Commands
from rq.timers import commands as timer_commands
from rq.timers import timer
from rq.words.states import Child, Event, Note, State


def section(page, title):
    return documents.section(REFERENCE / f"{page}.md", title)


NAMES = [str(page.relative_to(CHECKOUT)) for page in PAGES]
GROUPED = {"params", "limits", "extra"}
MESSAGE = {one.name for one in fields(Message)} - GROUPED | {"hold", *PARAMS, *LIMITS}


@pytest.mark.parametrize(
    ("page", "title", "head", "words"),
    [
        ("socket", "Commands", "command", set(COMMANDS)),
        ("socket", "The supervisor", "command", set(Commands.COMMANDS)),
        ("socket", "Timers", "command", set(timer_commands.COMMANDS)),
        ("pipe", "The words", "word", {*Verb, *pipe.ALIASES}),
        ("messages", "Causes", "word", set(Cause)),
        ("journal", "Lines", "`ev`", {*Event, *Note, *JournalNote}),
        ("messages", "States", "state", set(State) - {State.NOWHERE, State.GONE}),
        (
            "files",
            "The file status",
            "field",
            {"job_status", "host", "finished", *status.STATUS_FIELDS},
        ),
    ],
)
def test_each_word_has_its_row_and_each_row_its_word(page, title, head, words):
    assert documents.first_words(section(page, title), head) == words


@pytest.mark.parametrize("name", MADE)
def test_a_table_that_is_made_from_the_code_is_as_it_is_made(name):
    """Else: PYTHONPATH=.:test .venv/bin/python -m harness.tables"""
    assert MADE[name].told == MADE[name].text


def test_each_field_of_a_message_has_its_row():
    table = documents.rows(section("messages", "Fields"), "field")
    assert {name for row in table for name in names_in(row)} == MESSAGE


def names_in(row):
    cell = row[0].replace("`param1` … `param4`", " ".join(f"`{one}`" for one in PARAMS))
    return WORD.findall(cell)


def test_it_is_told_which_commands_are_answered_when_down():
    table = documents.rows(section("socket", "Commands"), "command")
    rows = {WORD.findall(row[0])[0]: row[-1] for row in table[:-1]}
    assert rows == {
        word: "no" if command.answered is Answered.UP else "yes"
        for word, command in COMMANDS.items()
    }


@pytest.mark.parametrize(
    ("title", "kind", "demanded"),
    [
        ("The main configuration", RootConfig, {"host", "port"}),
        ("A queue", QueueConfig, {"script"}),
    ],
)
def test_each_setting_is_told_with_its_default(title, kind, demanded):
    table = documents.rows(section("configuration", title), "key")
    assert {WORD.findall(row[0])[0]: row[2] for row in table} == {
        one.name: "**must be**" if one.name in demanded else f"`{default(one)}`"
        for one in fields(kind)
    }
    told = {WORD.findall(row[0])[0]: row[1] for row in table}
    for one in fields(kind):
        assert told[one.name].startswith(one.metadata["kind"]), one.name


def default(field):
    is_made = field.default is MISSING
    return json.dumps(field.default_factory() if is_made else field.default)


def test_each_variable_that_a_script_is_given_has_its_row():
    config = RootConfig(tmpdir="/tmp")
    spark = {"master": "local", "conf": {}, "allow": [], "idle": 1}
    spark |= {"engine": "duckdb", "memory": "1GB", "threads": 2, "patience": 1}
    spark |= {"keep_sources": 1}
    base = environment.fixed(CHECKOUT, config, QueueConfig(script="x", spark=spark))
    message = Message(
        msg_id="20260102.0304.05.006.7",
        dest="q",
        due=0,
        force_remote=True,
        parent_result="x",
    )
    given = {
        **environment.for_script(base, "/x", ""),
        **environment.of_message(config, "q", message, "/"),
    }
    table = documents.first_words(section("pipe", "How a script starts"), "variable")
    # The launcher adds the one that names a file which it has written.
    assert table == set(given) | set(default_worker_env()) | {"RQ_AFTER"}


def test_each_verb_of_the_command_line_is_told_by_its_help():
    help_text = cli.usage()
    assert all(f"  {verb} " in help_text for verb in {*cli.VERBS, *cli.ANCESTOR})
    ancestors = " ".join(cli.ANCESTOR)
    told = section("command-line", "The commands of the Ruby RQ")
    assert ancestors in " ".join(told.split())


def test_each_verb_of_the_command_line_has_its_row():
    assert documents.first_words(section("command-line", "Verbs"), "verb") == set(
        cli.VERBS
    )


def test_each_exit_code_has_its_row():
    codes = {cli.OK, cli.TIMEOUT, cli.ENDED_IN_ERR, cli.INTERRUPTED, cli.FAILED}
    codes |= {cli.INTEGRITY, *cli.EXIT_OF.values()}
    [table] = documents.tables(section("command-line", "Exit codes"))
    assert {int(row[0]) for row in table[2:]} == codes


@pytest.mark.parametrize(
    ("page", "title", "text", "value"),
    [
        ("messages", "Limits", "1,044,480 bytes", MESSAGE_LIMIT),
        ("messages", "Limits", "1 to 250 bytes", names.ATTACHMENT_BYTES),
        ("pipe", "The words", "65,536 bytes", pipe.LINE_LIMIT),
        ("socket", "The queue's socket", "| 2 MiB", connection.REQUEST_LIMIT >> 20),
        ("socket", "The queue's socket", "| 1,000 |", connections.MOST),
        ("socket", "The queue's socket", "| 30 seconds |", connections.FRAME_SECONDS),
        ("socket", "The queue's socket", "16 MiB", connection._BACKLOG >> 20),
        ("configuration", "Timers", "`period` is 60 seconds", timer.SHORTEST),
    ],
)
def test_a_limit_is_told_as_it_is(page, title, text, value):
    assert text in " ".join(section(page, title).split())
    assert str(int(value)) in text.replace(",", "")


@pytest.mark.parametrize("word", [*Child, *Kind])
def test_each_word_about_a_child_is_told(word):
    assert re.search(rf"\b{word}\b", section("socket", "The supervisor"))


def test_the_frames_that_are_shown_are_those_that_are_sent():
    reply = wire.frame(b'["pong"]').decode()
    shown = f"\n{wire.request('ping').decode()}\n{reply}\n"
    assert shown in section("socket", "The queue's socket")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_of_a_page_leads_somewhere(page):
    for link in documents.links(page):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor:
            assert anchor in documents.anchors(target), f"{link}: no such section"


def test_every_page_of_the_reference_and_of_the_guide_is_listed():
    listed = documents.links(CHECKOUT / "PROTOCOLS.md")
    for page in REFERENCE.glob("*.md"):
        assert f"docs/reference/{page.name}" in listed
    listed = documents.links(CHECKOUT / "README.md")
    for page in GUIDE.glob("*.md"):
        assert f"docs/guide/{page.name}" in listed


# The changelog is looked up, not read through: its newest version has all that it brings.
_LINES = {"README.md": 150, "CHANGELOG.md": 550}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_is_short_enough_to_be_read(page):
    lines = len(documents.text(page).splitlines())
    assert lines <= _LINES.get(page.name if page.parent == CHECKOUT else "", 400)


# A block is run, read by the program it is for, or marked as shown alone: it changes the
# machine, or needs another one.
_USES = {
    "console": {"", "shown", "alpha", "beta", "gamma"},
    "sh": {
        "run",
        "script",
        "worker",
        "batch",
        "web",
        "http",
        "tried",
        "cluster",
        "duckdb",
        "orders",
        "app",
        "secret",
        "shown",
    },
    "python": {
        *("run", "worker", "job", "notebook", "cell", "pytest", "app", "fastapi"),
        *("orders", "table"),
        "shown",
    },
    "js": {"node", "app", "express"},
    "php": {"app", "web", "slim"},
    "json": {
        "notice",
        "root",
        "queue",
        "timer",
        "webhooks",
        "router",
        "peers",
        "command",
        "batch",
        "flow",
    },
    "": {""},
}
PLAYED = [CHECKOUT / "README.md", *GUIDE.glob("*.md"), *REFERENCE.glob("*.md")]


@pytest.mark.parametrize(
    "page", PLAYED, ids=lambda page: str(page.relative_to(CHECKOUT))
)
def test_a_block_says_how_it_is_run(page):
    for example in documents.examples(page):
        assert example.use in _USES[example.language], example.text


ARCHITECTURE = CHECKOUT / "ARCHITECTURE.md"
NAMED = sorted(set(WORD.findall(documents.prose(ARCHITECTURE))))


@pytest.mark.parametrize("name", [name for name in NAMED if name.endswith(".py")])
def test_a_file_that_the_architecture_names_is_there(name):
    assert any([*(CHECKOUT / "rq").glob(name), *CHECKOUT.glob(name)])


DOTTED = re.compile(r"[a-z_]+(\.[A-Za-z_]+)+")
NO_MODULES = re.compile(r".*\.(py|json|toml|md|sh|sock|state|hosts|log)")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMED
        if DOTTED.fullmatch(name) and not NO_MODULES.fullmatch(name)
    ],
)
def test_a_name_that_the_architecture_names_is_there(name):
    assert pkgutil.resolve_name(f"rq.{name}")


def test_the_rooms_that_are_drawn_are_those_that_are_enforced():
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    layers = contracts["tool"]["importlinter"]["contracts"][0]["layers"]
    drawn = documents.section(ARCHITECTURE, "Rooms").split("```")[1].splitlines()
    rows = [line for line in drawn if line and not line.startswith(" ")]
    assert rows == [layer.replace("(", "").replace(")", "") for layer in layers]
