"""What an agent makes of answers that are late, broken, or of another version: nothing is
lost, and nothing counts twice."""

from __future__ import annotations

import pytest
from harness.agents import QUIET, member, tar_of

PAGE = b"<html>please log in to the network of this hotel</html>"


def ends_by_token(host):
    """Return what was said of each end, once if it is always the same."""
    found = {}
    for end in host.said("finish"):
        found.setdefault(end["token"], []).append(end)
    assert all(end == said[0] for said in found.values() for end in said)
    return {token: said[0]["word"] for token, said in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["leases", "start", "finish", "log", "script"])
def test_an_answer_that_breaks_off_is_asked_for_again(host, agent, word):
    host.script = tar_of((member("run"), f"#!/bin/sh\necho x; {QUIET}\n".encode()))
    tokens = [host.give() for _ in range(10)]
    host.half = {word}
    ended = agent.once("--slots", "2")
    assert ended.returncode == 0, ended.stderr
    assert host.half == set()
    assert ends_by_token(host) == dict.fromkeys(tokens, "done")
    assert {host.logs[token] for token in tokens} == {b"x\n"}
    assert agent.folders() == []


@pytest.mark.slow
@pytest.mark.parametrize("word", ["start", "renew", "finish", "release"])
@pytest.mark.parametrize(
    "answer",
    [
        *((200, PAGE), (500, PAGE), (502, b""), (200, {"results": []}), (200, [])),
        *((408, b"it came too slowly"), (520, PAGE)),  # of a web or a proxy
    ],
    ids=repr,
)
def test_an_answer_that_is_none_changes_no_end(host, agent, word, answer):
    times = iter(range(1 if word == "renew" else 3))
    host.instead[f"leases/{word}"] = lambda asked: (
        answer if next(times, None) is not None else None
    )
    host.seconds = 3 if word == "renew" else 60
    lasts = "sleep 1.3; " if word == "renew" else ""
    token = host.give()
    agent.runs("kill -9 $$" if word == "release" else lasts + QUIET)
    if word == "release":
        host.waiting[0]["message"]["param1"] = "a\0b"
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    if word == "release":
        assert len(host.said("release")) == 1
    else:
        assert ends_by_token(host) == {token: "done"}


@pytest.mark.parametrize(
    ("told", "end"),
    [([{"result": "a\0b"}], "done"), ("what", None), (["what"], None)],
)
def test_what_is_told_of_others_may_be_anything(host, agent, told, end):
    agent.runs('[ -e "$RQ_AFTER" ] && [ -z "$RQ_PARENT_RESULT" ] && ' + QUIET)
    token = host.give()
    host.waiting[0]["after"] = told
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ends_by_token(host) == ({} if end is None else {token: end})
    assert len(host.said("release")) == (end is None)


def test_fields_of_a_newer_host_are_ignored(host, agent):
    agent.runs("cat ../attach/a; " + QUIET)
    token = host.give(files={"a": b"x"}, some_new_field={"deep": [1]})
    new = {"new": {"of": ["another", "version"]}}
    host.waiting[0] |= new
    host.waiting[0]["limits"] |= new
    host.waiting[0]["attachments"][0] |= new
    usual = host.answer
    host.answer = lambda *asked: widened(usual(*asked), new)
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert ends_by_token(host) == {token: "done"}


def widened(answer, new):
    status, value = answer
    if isinstance(value, dict):
        rows = value.get("results", [])
        value = {**value, **new}
        if rows:
            value["results"] = [{**row, **new} for row in rows]
    return status, value


@pytest.mark.parametrize("field", ["msg_id", "attempt", "attachments", "limits"])
def test_a_field_that_an_older_host_does_not_know_is_not_missed(host, agent, field):
    agent.runs(QUIET)
    token = host.give()
    del host.waiting[0][field]
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert ends_by_token(host) == {token: "done"}


@pytest.mark.parametrize("field", ["message", "seconds"])
def test_a_lease_without_what_it_needs_is_given_back(host, agent, field):
    agent.runs(QUIET)
    host.give()
    del host.waiting[0][field]
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    [given] = host.said("release")
    assert "cannot read the message" in given["why"]
