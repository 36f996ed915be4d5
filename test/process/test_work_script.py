"""The script that a queue shares, at an agent: fetched, laid out, run."""

from __future__ import annotations

import asyncio
import tarfile
import time

import pytest
from harness.agents import QUIET, member, tar_of

from rq.outbound import addresses, peers
from rq.outbound.host import Host
from rq.outbound.peers import Peer
from rq.work.link import Link
from rq.work.service import Service
from rq.work.shared_script import SharedScript


def test_a_shared_script_is_fetched_and_run(host, agent):
    text = b'#!/bin/sh\n. "$(dirname "$0")/lib/more"\n'
    host.script = tar_of(
        (member("run"), text), (member("lib/more", mode=0o644), QUIET.encode())
    )
    host.give()
    ended = agent.once()
    assert ended.returncode == 0, ended.stderr
    assert host.ends() == ["done"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil"),
        member("/evil"),
        member("x", tarfile.SYMTYPE, target="/etc"),
        member("x", tarfile.LNKTYPE, target="/etc/passwd"),
        member("x", tarfile.FIFOTYPE),
        member("x", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} {info.type!r}",
)
def test_a_hostile_script_is_not_laid_out(host, agent, bad):
    host.script = tar_of((member("run"), b"#!/bin/sh\n"), (bad, b""))
    host.give()
    ended = agent.once()
    assert ended.returncode == 2, ended.stderr
    assert "the queue's script holds" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_script_that_is_known_does_not_travel_again(host, tmp_path):
    host.script = tar_of((member("run"), b"#!/bin/sh\n"))

    async def look():
        to = peers.target(host.url)
        asked = Host(to, Peer(allow=addresses.allowed([to.place])), time.monotonic)
        shared = SharedScript(Service(to, Link(asked.ask, to.peer), {}), tmp_path)
        try:
            looks = [await shared.fetch(), await shared.fetch()]
            host.script = tar_of((member("run"), b"#!/bin/sh\n# another\n"))
            return [*looks, await shared.fetch(), await shared.fetch()]
        finally:
            asked.close()

    assert asyncio.run(look()) == [True, False, True, False]
    first, known, changed, last = host.scripts_asked
    assert first is None
    assert known == changed != last == host.tag


def test_an_agent_that_gets_no_script_ends_after_its_time(host, agent):
    host.is_silent = True
    ended = agent.once("--for", "1s")
    assert ended.returncode == 6, ended.stderr
    said = ended.stderr.splitlines()[-1]
    assert "has not given the script of queue" in said
    assert said.endswith("in 1.0 s, for which this agent was to work")
