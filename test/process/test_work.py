"""The agent `rq work` against a host that a test plays: what it does."""

from __future__ import annotations

import hashlib
import json

from harness.agents import QUIET
from harness.waiting import wait_until


def test_a_message_is_laid_out_run_and_handed_in(host, agent):
    agent.runs('cat ../attach/a; echo "$RQ_PARAM1 $RQ_COUNT"; pwd; ' + QUIET)
    token = host.give(files={"a": b"attached\n"}, param1="one")
    other = host.give(param1="two words")
    ended = agent.once("--slots", "2")
    assert ended.returncode == 0, ended.stderr
    assert {end["token"] for end in host.said("finish")} == {token, other}
    end = host.said("finish")[0]
    assert (end["word"], end["exit"]) == ("done", 0)
    assert host.logs[token].startswith(b"attached\none 0\n/")
    assert host.logs[token].endswith(b"/job\n")
    assert [start["token"] for start in host.said("start")] == [token, other]
    assert agent.folders() == []


def test_all_that_a_script_says_travels(host, agent):
    says = {
        "err": "echo 'err broken' >&3",
        "later": "echo 'later 9@db not yet' >&3",
        "none": "echo last words; exit 3",
        "copy": "echo 'dup 5-X-other' >&3; read a <&4; echo \"$a\"; " + QUIET,
        "unread": "echo 'resend soon' >&3",
        "value": "echo 'result 41' >&3; echo 'result 42' >&3; " + QUIET,
    }
    cases = "\n".join(f"{name}) {text};;" for name, text in says.items())
    agent.runs(f"case $RQ_PARAM1 in\n{cases}\nesac")
    tokens = {name: host.give(param1=name) for name in says}
    assert agent.once("--slots", "3").returncode == 0
    ends = {end["token"]: end for end in host.said("finish")}
    end = {name: ends[token] for name, token in tokens.items()}
    assert (end["err"]["word"], end["err"]["text"]) == ("err", "broken")
    assert (end["later"]["delay"], end["later"]["waits_for"]) == (9.0, "db")
    assert (end["none"]["word"], end["none"]["exit"]) == (None, 3)
    assert end["none"]["printed"] == "last words"
    assert end["copy"]["dups"] == [{"delay": 5.0, "dest": "other"}]
    assert host.logs[tokens["copy"]].startswith(b"ok ")
    assert end["unread"]["word"] == "err"
    assert end["unread"]["unreadable"]
    assert (end["value"]["word"], end["value"]["result"]) == ("done", "42")


def test_a_script_is_told_of_those_that_its_message_waited_for(host, agent):
    agent.runs('cat "$RQ_AFTER"; echo "$RQ_PARENT_RESULT"; ls ..; ' + QUIET)
    token, plain = host.give(), host.give()
    row = {"id": "1", "queue": "t", "state": "done", "result": "42"}
    gate = {"id": "2", "queue": "flow", "state": "done"}  # of a flow, first of all
    host.waiting[0]["after"] = [gate, row]
    assert agent.once().returncode == 0
    first, line, rest = host.logs[token].split(b"\n", 2)
    assert (json.loads(first), json.loads(line)) == (gate, row)
    assert rest.split() == [b"42", b"after.jsonl", b"job", b"msg"]
    assert b"after" not in host.logs[plain]
    assert agent.folders() == []


def test_no_more_is_leased_than_the_slots_can_take(host, agent):
    gate = agent.path / "gate"
    agent.runs(f"while [ ! -e {gate} ]; do sleep 0.05; done; {QUIET}")
    for _ in range(4):
        host.give()
    with agent.running("--slots", "2"):
        wait_until(lambda: len(host.said("start")) >= 2)
        wait_until(lambda: host.asked and host.asked[-1]["count"] == 0)
        assert len(host.said("start")) == 2
        gate.touch()
        wait_until(lambda: len(host.ends()) == 4)


def test_results_are_handed_in_with_done(host, agent):
    agent.runs("mkdir results; echo 42 > results/answer.txt; " + QUIET)
    host.give()
    assert agent.once().returncode == 0
    digest = hashlib.sha256(b"42\n").hexdigest()
    assert host.said("finish")[0]["files"] == {"answer.txt": digest}
    assert host.files == {"answer.txt": b"42\n"}


def test_a_result_that_leads_elsewhere_is_not_handed_in(host, agent):
    agent.runs("mkdir results; ln -s /etc/passwd results/answer; " + QUIET)
    host.give()
    assert agent.once().returncode == 0
    assert host.ends() == ["err"]
    assert host.files == {}


def test_long_lived_workers_take_message_after_message(host, agent):
    agent.runs(
        'echo ready >&3\nwhile read -r line <&4; do echo "$$ $line"; '
        "echo 'done' >&3; echo ready >&3; done",
        '{"worker": "persistent"}',
    )
    tokens = [host.give(param1=str(number)) for number in range(20)]
    ended = agent.once("--slots", "2")
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == ["done"] * 20
    pids = {host.logs[token].split()[0] for token in tokens}
    assert len(pids) <= 2
    assert b'"RQ_PARAM1":"7"' in host.logs[tokens[7]]
