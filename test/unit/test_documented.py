"""PROTOCOLS.md tells all that strangers can say and see, and nothing that is not there."""

import json
import re
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path

import pytest

from rq import cli, names, pipe, wire
from rq.causes import Cause
from rq.config.settings import QueueConfig, RootConfig, default_worker_env
from rq.journal.line import Note as JournalNote
from rq.message import MESSAGE_LIMIT, PARAMS, Message
from rq.pipe import Verb
from rq.queues.control import commands, connection, connections
from rq.scripts import environment
from rq.spool import status
from rq.states import Child, Event, Note, State
from rq.supervisor.children import Kind
from rq.supervisor.commands import Commands
from rq.timers import sending, timer

CHECKOUT = Path(__file__).resolve().parent.parent.parent
TEXT = (CHECKOUT / "PROTOCOLS.md").read_text()
WORD = re.compile(r"`([^`]+)`")


@cache
def section(title):
    """Return the text of a section, those below it included."""
    found = re.search(rf"^(#+) {title}$", TEXT, re.MULTILINE)
    assert found, f"there is no section {title}"
    end = re.search(rf"^#{{1,{len(found[1])}}} ", TEXT[found.end() :], re.MULTILINE)
    return TEXT[found.end() :][: end.start() if end else None]


def tables(title):
    """Return the tables of a section, the rows of each as lists of cells."""
    lines = section(title).splitlines()
    found = [[]]
    for line in lines:
        if line.startswith("|"):
            found[-1].append([one.strip() for one in line.strip("|").split(" | ")])
        elif found[-1]:
            found.append([])
    return [rows for rows in found if rows]


def table(title, head):
    """Return the rows of the table of a section whose first cell is `head`."""
    return next(rows[2:] for rows in tables(title) if rows[0][0].strip() == head)


def told(title, head):
    """Return the words in the first column of a table."""
    return {word for row in table(title, head) for word in WORD.findall(row[0])}


MESSAGE = {one.name for one in fields(Message)} - {"params", "extra"} | set(PARAMS)


@pytest.mark.parametrize(
    ("title", "head", "words"),
    [
        ("Commands", "command", set(commands.COMMANDS)),
        ("The supervisor", "command", set(Commands.COMMANDS)),
        ("Timers", "command", set(sending.COMMANDS)),
        ("The pipe", "word", {*Verb, *pipe.ALIASES}),
        ("Causes", "word", set(Cause)),
        ("The journal", "`ev`", {*Event, *Note, *JournalNote}),
        ("Messages", "state", set(State) - {State.NOWHERE, State.GONE}),
        ("Files", "field", {"job_status", "finished", *status.STATUS_FIELDS}),
    ],
)
def test_each_word_has_its_row_and_each_row_its_word(title, head, words):
    assert told(title, head) == words


def test_each_field_of_a_message_has_its_row():
    rows = {name: None for row in table("Messages", "field") for name in names_in(row)}
    assert set(rows) == MESSAGE


def names_in(row):
    cell = row[0].replace("`param1` … `param4`", " ".join(f"`{one}`" for one in PARAMS))
    return WORD.findall(cell)


def test_it_is_told_which_commands_are_answered_when_down():
    rows = {
        WORD.findall(row[0])[0]: row[-1] for row in table("Commands", "command")[:-1]
    }
    assert rows == {
        word: "yes" if one.always or one.down else "no"
        for word, one in commands.COMMANDS.items()
    }


@pytest.mark.parametrize(
    ("kind", "head", "demanded"),
    [(RootConfig, "host", {"host", "port"}), (QueueConfig, "name", {"script"})],
)
def test_each_setting_is_told_with_its_default(kind, head, demanded):
    rows = next(
        rows[2:] for rows in tables("Configuration") if rows[2][0] == f"`{head}`"
    )
    defaults = {WORD.findall(row[0])[0]: row[2] for row in rows}
    assert defaults == {
        one.name: "**must be**" if one.name in demanded else f"`{default(one)}`"
        for one in fields(kind)
    }


def default(one):
    value = one.default_factory() if one.default is MISSING else one.default
    return json.dumps(value)


def test_each_variable_that_a_script_is_given_has_its_row():
    config = RootConfig(tmpdir="/tmp")
    spark = {"master": "local", "conf": {}}
    base = environment.fixed(CHECKOUT, config, QueueConfig(script="x", spark=spark))
    given = environment.for_message(
        base,
        config,
        "q",
        Message(msg_id="20260102.0304.05.006.7", dest="q", due=0, force_remote=True),
        script="/x",
        directory="/",
        lease="",
    )
    assert told("Scripts", "variable") == set(given) | set(default_worker_env())


def test_each_verb_of_the_command_line_is_told_by_its_help():
    help_text = cli.usage()
    assert all(f"  {verb} " in help_text for verb in {*cli.VERBS, *cli.ANCESTOR})
    ancestors = " ".join(cli.ANCESTOR)
    assert ancestors in " ".join(section("Command line").split())


def test_each_exit_code_has_its_row():
    codes = {cli.OK, cli.TIMEOUT, cli.ENDED_IN_ERR, cli.INTERRUPTED, cli.FAILED}
    codes |= {cli.INTEGRITY, *cli.EXIT_OF.values()}
    [rows] = tables("Command line")
    assert {int(row[0]) for row in rows[2:]} == codes


@pytest.mark.parametrize(
    ("title", "text", "value"),
    [
        ("Messages", "1,044,480 bytes", MESSAGE_LIMIT),
        ("Messages", "1 to 200 bytes", names.ATTACHMENT_BYTES),
        ("The pipe", "65,536 bytes", pipe.LINE_LIMIT),
        ("The control socket", "| 2 MiB", connection.REQUEST_LIMIT >> 20),
        ("The control socket", "| 1,000 |", connections.MOST),
        ("The control socket", "| 30 seconds |", connections.FRAME_SECONDS),
        ("The control socket", "16 MiB", connection._BACKLOG >> 20),
        ("Timers", "`period` is 60 seconds", timer.SHORTEST),
    ],
)
def test_a_limit_is_told_as_it_is(title, text, value):
    assert text in section(title)
    assert str(int(value)) in text.replace(",", "")


@pytest.mark.parametrize("word", [*Child, *Kind])
def test_each_word_about_a_child_is_told(word):
    assert re.search(rf"\b{word}\b", section("The supervisor"))


def test_the_frames_that_are_shown_are_those_that_are_sent():
    reply = wire.frame(b'["pong"]').decode()
    assert f"\n{wire.request('ping').decode()}\n{reply}\n" in TEXT


def test_the_links_within_it_lead_somewhere():
    heads = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = {head.lower().replace(" ", "-") for head in heads}
    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= anchors
