"""What no host may make an agent do, and what an agent shows to no one."""

from __future__ import annotations

import pytest
from harness.agents import QUIET


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "a/b", "..", ""])
def test_a_hostile_name_is_given_back(host, agent, name):
    agent.runs(QUIET)
    host.give(files={"a": b"x"})
    host.waiting[0]["attachments"][0]["name"] = name
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == []
    assert len(host.said("release")) == 1


def test_attachments_that_are_not_what_was_said_are_given_back(host, agent):
    agent.runs(QUIET)
    host.give(files={"a": b"x"})
    host.waiting[0]["attachments"][0]["sha256"] = "0" * 64
    host.give(files={"huge": b"x"})
    host.waiting[1]["attachments"][0]["size"] = 2**61
    assert agent.once().returncode == 0
    assert host.ends() == []
    whys = sorted(given["why"] for given in host.said("release"))
    assert "did not arrive" in whys[0]
    assert "no room" in whys[1]


@pytest.mark.slow
def test_what_the_disk_here_has_no_room_for_is_given_back(host, agent):
    """As on a full disk: the host is not to blame, and its lease is not renewed for ever."""
    agent.runs(QUIET)
    host.give(files={"large": b"x" * 200_000})
    host.give(param1="x" * 100_000)
    ended = agent.once(file_limit=50_000)
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == []
    whys = [given["why"] for given in host.said("release")]
    assert len(whys) == 2
    assert all("its worker cannot lay it out: File too large" in why for why in whys)


def test_a_host_that_gives_more_than_was_asked_for_is_left(host, agent):
    agent.runs(QUIET)
    for _ in range(2):
        host.give()
    host.instead["leases"] = lambda _: (200, {"leases": host.waiting, "why": None})
    ended = agent.once()
    assert ended.returncode == 2
    assert "more than 1 leases" in ended.stderr
    assert agent.folders() == []


def test_another_token_for_what_is_at_work_is_given_back(host, agent):
    """A queue that was restored from a copy hands the same attempt out again: the folder
    of the second would take the place of the first's."""
    agent.runs("sleep 1; ls ..; " + QUIET)
    token = host.give()
    other = f"{token[:-1]}f"
    offers = [[{**host.waiting[0], "token": other}], host.waiting]
    host.instead["leases"] = lambda _: (
        200,
        {"leases": offers.pop() if offers else [], "why": None},
    )
    assert agent.once("--slots", "3").returncode == 0
    assert [given["token"] for given in host.said("release")] == [other]
    assert [end["token"] for end in host.said("finish")] == [token]
    assert host.logs[token] == b"job\nmsg\n"


def test_what_a_host_says_is_one_line_that_can_be_seen(host, agent):
    agent.runs(QUIET)
    said = "\x1b[31mno\n2026-01-02 forged"
    host.instead["leases"] = lambda _: (403, {"detail": said})
    ended = agent.once()
    assert "rq: <U+001B>[31mno<U+000A>2026-01-02 forged\n" in ended.stderr


def test_an_attachment_that_is_longer_than_was_said_is_given_back(host, agent):
    agent.runs(QUIET)
    host.give(files={"a": b"xyz"})
    host.waiting[0]["attachments"][0]["size"] = 2
    assert agent.once().returncode == 0
    [given] = host.said("release")
    assert "larger than it may be" in given["why"]


@pytest.mark.parametrize(
    "answer",
    [{"leases": "x"}, {"leases": [{"token": "../x"}]}, [], b"no JSON", {}],
    ids=repr,
)
def test_an_answer_that_is_none_ends_the_agent_with_a_sentence(host, agent, answer):
    agent.runs(QUIET)
    host.instead["leases"] = lambda asked: (200, answer)
    ended = agent.once()
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("rq: ")


# ---- who asks


def test_a_token_comes_from_a_file_that_nobody_else_reads(host, agent, tmp_path):
    agent.runs(QUIET)
    secret = tmp_path / "token"
    secret.write_text("rq_secret\n")
    secret.chmod(0o644)
    ended = agent.once("--token-file", str(secret))
    assert (ended.returncode, "chmod 600" in ended.stderr) == (1, True)
    secret.chmod(0o600)
    assert agent.once("--token-file", str(secret)).returncode == 0


def test_a_refused_login_is_said_in_a_sentence(host, agent):
    agent.runs(QUIET)
    host.instead["leases"] = lambda asked: (401, {"detail": "a token is needed"})
    ended = agent.once()
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1] == "rq: a token is needed"


def test_a_root_that_is_none_is_named(agent, tmp_path):
    agent.root = tmp_path / "nowhere"
    ended = agent.once()
    assert ended.returncode == 1
    [said] = ended.stderr.splitlines()
    assert said.startswith("rq: --root ")
    assert "nowhere" in said
