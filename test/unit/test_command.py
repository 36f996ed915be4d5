"""Commands of queues that `rq queue new` makes: what a message can, and cannot, bring."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.builtin.command import Command, check, expand, parse
from rq.errors import BadInput
from rq.scripts.program_file import unfit


def words(*command, append=False):
    return Command(command, append)


def expanded(command, last=0, **params):
    found = expand(command, {k: v.encode() for k, v in params.items()}, last)
    return [one.decode() for one in found]


def refused(command, last=0, **params):
    with pytest.raises(BadInput) as caught:
        expanded(command, last, **params)
    return str(caught.value)


HOSTILE = [
    "$(id)",
    "`id`",
    "a b",
    "a\nb",
    "; rm -rf /",
    "'\"",
    "{param2}",
    "*",
    "\\0",
    "é",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_stays_within_its_argument_whatever_it_holds(value):
    command = words("cmd", "--name={param1}", "{param1}", "x{param2}x")
    found = expanded(command, param1=value, param2="-rf")
    assert found == ["cmd", f"--name={value}", value, "x-rfx"]


@pytest.mark.parametrize("value", ["-rf", "--", "-", "--output=/etc/passwd"])
def test_a_value_cannot_become_an_option(value):
    assert "would be an option" in refused(words("rm", "{param1}"), param1=value)
    assert "would be an option" in refused(
        words("rm", "{param1}{param2}"), param1=value, param2="x"
    )
    assert expanded(words("rm", "--", "{param1}"), param1=value) == ["rm", "--", value]
    assert expanded(words("rm", "-x{param1}"), param1=value) == ["rm", f"-x{value}"]


def test_a_value_that_ends_the_options_does_not_let_the_next_one_be_one():
    command = words("cmd", "x{param1}", "{param2}")
    assert "{param2}" in refused(command, param1="--", param2="-rf")
    assert refused(words("cmd", "{param1}", "{param2}"), param1="--", param2="-rf")


@pytest.mark.parametrize("params", [{}, {"param1": ""}, {"param2": "x"}])
def test_a_param_that_is_not_there_is_no_empty_text(params):
    # rm -r /data/{param1} would remove all.
    told = refused(words("rm", "-r", "/data/{param1}"), **params)
    assert told == "the command needs param1, and the message has none"


def test_all_parameters_go_behind_two_dashes():
    command = words("cmd", "-v", append=True)
    given = {"param1": "-rf", "param2": "", "param3": "a b"}
    assert expanded(command, 3, **given) == ["cmd", "-v", "--", "-rf", "", "a b"]
    assert expanded(command) == ["cmd", "-v"]
    behind = words("cmd", "--", "first", append=True)
    assert expanded(behind, 1, param1="-x") == ["cmd", "--", "first", "-x"]


@given(st.dictionaries(st.sampled_from(["param1", "param2"]), st.text(min_size=1)))
def test_the_number_of_arguments_is_the_commands(params):
    command = words("cmd", "a{param1}", "b{param2}{param1}")
    try:
        found = expand(command, {k: v.encode() for k, v in params.items()})
    except (BadInput, UnicodeEncodeError):
        return
    assert len(found) == 3


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "echo {param1}"],
        ["/bin/bash", "-lc", "echo {param1}"],
        ["bash", "-o", "pipefail", "-c", "echo {param1}"],
        ["env", "A=b", "{param1}"],
        ["env", "bash", "-c", "x {param1}"],
        ["sudo", "-n", "sh", "-ec", "{param1}"],
        ["busybox", "sh", "-c", "{param1}"],
        ["su", "-", "alice", "-c", "x {param1}"],
        ["flock", "/tmp/l", "-c", "x {param1}"],
        ["timeout", "5", "{param1}"],
        ["nice", "-n", "5", "{param1}"],
        ["bash", "{param1}"],
        ["python3", "-c", "print({param1})"],
        ["python3.12", "{param1}"],
        ["perl", "-e", "{param1}"],
        ["awk", "{param1}", "file"],
        ["sed", "-e", "s/a/{param1}/"],
        ["ssh", "host", "rm", "{param1}"],
        ["find", "/d", "-exec", "sh", "-c", "x {param1}", ";"],
        ["xargs", "{param1}"],
        ["{param1}"],
        ["/opt/{param1}/run"],
    ],
)
def test_no_message_brings_a_program_or_code_for_one(command):
    with pytest.raises(BadInput):
        check(words(*command))


@pytest.mark.parametrize(
    "command", [["sh"], ["env"], ["ssh", "host", "ls"], ["sudo", "-n"]]
)
def test_nor_does_it_by_being_appended(command):
    with pytest.raises(BadInput, match="--append would give"):
        check(words(*command, append=True))


@pytest.mark.parametrize(
    "command",
    [
        ["convert", "{param1}", "-resize", "200x200", "--", "{param2}"],
        ["sh", "-c", 'echo "$1"', "name", "{param1}"],
        ["python3", "/srv/app.py", "{param1}"],
        ["python3", "/srv/app.py", "-e", "{param1}"],
        ["awk", "{print $1}", "{param1}"],
        ["sed", "-e", "s/a/b/", "{param1}"],
        ["find", "/data/{param1}", "-name", "{}"],
        ["timeout", "5", "curl", "--", "{param1}"],
    ],
)
def test_what_only_looks_like_it_is_taken(command):
    check(words(*command))


@pytest.mark.parametrize(
    "word", ["{param5}", "{param0}", "{Param1}", "{param}", "{params}", "{ param1 }"]
)
def test_a_place_that_nothing_is_put_into_is_refused(word):
    with pytest.raises(BadInput, match="is none of"):
        check(words("echo", f"x{word}x"))


@pytest.mark.parametrize("name", ["parma2", "parm2", "praam2", "parameter2", "pram2"])
def test_a_place_that_is_mistyped_is_refused(name):
    with pytest.raises(BadInput, match=r"param2|is none of"):
        check(words("cp", f"{{{name}}}", "/mnt"))


@pytest.mark.parametrize(
    "word", ["{}", "{print}", "{1}", "{{.Name}}", "{a,b}", "{paris}"]
)
def test_other_braces_are_the_commands(word):
    check(words("docker", word))


@pytest.mark.parametrize("command", [[], [""], ["echo", "\udcff"]])
def test_what_is_no_command_is_refused(command):
    with pytest.raises(BadInput):
        check(words(*command))


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"command": []}, {"command": "ls"}, {"command": ["ls", 1]},
     {"command": ["ls"], "append": 1}],
)  # fmt: skip
def test_a_damaged_file_is_told(data):
    with pytest.raises(BadInput, match="it is not"):
        parse(data)


def test_what_is_written_is_read():
    command = words("a", "{param1}", append=True)
    assert parse(command.to_json()) == command


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("#!/bin/sh\n", 0o755, ""),
        ("\x7fELF and so on\n", 0o755, ""),
        ("#!/usr/bin/env no-such\n", 0o755, ""),  # env says it
        ("#!/bin/sh\n", 0o644, "it is not executable: chmod +x"),
        ("#!/usr/bin/pyhton3\n", 0o755, "names /usr/bin/pyhton3, which is not there"),
        ("#! /no/such -x\n", 0o755, "names /no/such, which is not there"),
        ("#!/bin/sh\r\necho\r\n", 0o755, "its lines end as on Windows: sed"),
    ],
)
def test_what_keeps_a_script_from_starting_is_named(tmp_path, content, mode, why):
    script = tmp_path / "script"
    script.write_bytes(content.encode())
    script.chmod(mode)
    said = unfit(str(script))
    assert why in said if why else said == ""


def test_a_script_that_others_may_start_is_told_as_that(tmp_path, monkeypatch):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for another user
    assert unfit(str(script)) == f"RQ's user may not execute it: chmod a+rx {script}"
    with monkeypatch.context() as closed:
        closed.setattr(os, "stat", raising(PermissionError))
        said = unfit("/root/script")
    assert said == "a directory above it is closed to RQ's user"


def raising(error):
    def refuse(*_, **__):
        raise error

    return refuse


def test_a_directory_and_what_is_not_there_are_no_programs(tmp_path):
    assert unfit(str(tmp_path)) == "it is not a regular file"
    assert unfit(str(tmp_path / "x")) == "there is no such file"
    assert unfit("on-the-path") == ""
