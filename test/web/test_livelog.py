"""The live log as programs see it: server-sent events by byte offset."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from types import SimpleNamespace

import pytest
from harness.cli import rq as cli
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.errors import Refused
from rq.layout import Root
from rq.web.livelog import MOST_OF_ONE, MOST_VIEWERS, Hub, Viewer


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(tmp_path_factory.mktemp("live") / "rq") as running:
        yield running


class Stream:
    """A stream of events, read as it comes."""

    def __init__(self, port: int, path: str, **headers: str) -> None:
        self.line = socket.create_connection(("127.0.0.1", port), timeout=60)
        named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{named}\r\n"
        self.line.sendall(head.encode())
        self.file = self.line.makefile("rb")
        assert b" 200 " in self.file.readline()

    def events(self):
        """Give (kind, data, id) until the stream ends."""
        kind, number = "", ""
        for raw in self.file:
            line = raw.decode().rstrip("\r\n")
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield kind, json.loads(line[6:]), number
                if kind in ("end", "bye"):
                    return

    def text(self) -> str:
        """Return all that is written until the end."""
        return "".join(data["text"] for kind, data, _ in self.events() if kind == "log")

    def until(self, wanted: str):
        """Read on until a text has come; return the id to resume from."""
        seen = ""
        for kind, data, number in self.events():
            seen += data.get("text", "") if kind == "log" else ""
            if wanted in seen:
                return number
        raise AssertionError(f"{wanted!r} is not in {seen!r}")

    def close(self) -> None:
        self.file.close()
        self.line.close()


@contextlib.contextmanager
def following(site, queue, msg_id, start=0, **headers):
    stream = Stream(site.port, f"/q/{queue}/{msg_id}/follow?from={start}", **headers)
    try:
        yield stream
    finally:
        stream.close()


def until(name):
    """Return what lets a script wait for a file in its directory."""
    return f"until [ -e {name} ]; do sleep 0.05; done"


def job_of(site, queue, msg_id):
    """Return the directory of the script of a message that runs."""
    return site.daemon.root.queue(queue).path / "run" / msg_id / "job"


@pytest.mark.slow
def test_a_stream_tells_all_that_is_written_and_how_it_ended(site):
    name = site.queue("echo one; sleep 0.3; echo two; echo 'err so it is' >&3")
    msg_id = site.send(name)
    with following(site, name, msg_id) as stream:
        found = list(stream.events())
    text = "".join(data["text"] for kind, data, _ in found if kind == "log")
    assert "one\ntwo\n" in text
    last_state = [data for kind, data, _ in found if kind == "state"][-1]
    assert last_state["state"] == "err"
    assert "so it is" in last_state["story"]["why"]
    assert found[-1][0] == "end"
    assert found[-1][1]["size"] == len(text.encode())


def test_a_broken_stream_goes_on_at_the_byte_where_it_broke(site):
    name = site.queue(f"echo first; {until('goes-on')}; echo second; echo done >&3")
    msg_id = site.send(name)
    with following(site, name, msg_id) as stream:
        number = stream.until("first\n")
    (job_of(site, name, msg_id) / "goes-on").touch()
    with following(site, name, msg_id, **{"Last-Event-ID": number}) as stream:
        rest = stream.text()
    assert rest.startswith("second\n")
    assert "first" not in rest


def test_a_stream_begins_before_the_script_does_and_lasts_over_its_attempts(site):
    name = site.queue(
        'echo "count $RQ_COUNT"; [ $RQ_COUNT = 0 ] && echo resend 1-more >&3 && exit\n'
        "echo done >&3"
    )
    site.daemon.ask("pause_queue", name)
    wait_until(lambda: site.daemon.ask_queue(name, "status") == ["PAUSE"])
    msg_id = site.send(name)
    with following(site, name, msg_id) as stream:
        site.daemon.ask("resume_queue", name)
        text = stream.text()
    assert "count 0\n" in text
    assert "count 1\n" in text


def test_a_character_that_is_written_in_halves_is_never_shown_broken(site):
    name = site.queue("printf 'a\\303'; sleep 0.5; printf '\\274b'; echo done >&3")
    msg_id = site.send(name)
    with following(site, name, msg_id) as stream:
        assert "aüb" in stream.text()


def test_half_a_character_at_the_very_end_is_shown_when_nothing_more_can_come(site):
    name = site.queue("printf 'a\\303'; echo done >&3; printf '\\303' > last")
    msg_id = site.send(name)
    with following(site, name, msg_id) as stream:
        assert "a\ufffd" in stream.text()


def test_a_viewer_that_is_far_behind_jumps_near_the_end(site):
    name = site.queue("truncate -s 2147483648 stdio.log; echo end; echo done >&3")
    msg_id = site.send(name)
    wait_until(lambda: site.state(name, msg_id) == "done")
    with following(site, name, msg_id) as stream:
        found = list(stream.events())
    assert [kind for kind, _, _ in found].count("skip") == 1
    assert sum(len(data["text"]) for kind, data, _ in found if kind == "log") < 200_000


def test_a_log_that_is_replaced_begins_anew(site):
    name = site.queue(
        f"echo old; {until('seen')}; rm stdio.log; {until('anew')}; echo done >&3"
    )
    msg_id = site.send(name)
    folder = job_of(site, name, msg_id)
    with following(site, name, msg_id) as stream:
        stream.until("old\n")
        (folder / "seen").touch()
        wait_until(lambda: not (folder / "stdio.log").exists())
        (folder / "stdio.log").write_text("new\n")
        kinds = []
        for kind, data, _ in stream.events():
            kinds.append(kind)
            if kind == "log" and data["text"] == "new\n":
                break
        (folder / "anew").touch()
    assert "reset" in kinds


def test_a_message_that_is_removed_ends_its_stream(site):
    name = site.queue("echo done >&3")
    site.daemon.ask("pause_queue", name)
    wait_until(lambda: site.daemon.ask_queue(name, "status") == ["PAUSE"])
    msg_id = site.send(name)
    with following(site, name, msg_id) as stream:
        site.post(f"/q/{name}/{msg_id}", {"_method": "delete", "x_format": "json"})
        *_, (kind, data, _) = stream.events()
    assert kind == "end"
    assert "not found" in data["lost"]


@pytest.fixture(scope="module")
def ended(site):
    """Give the queue and the id of a message that has ended."""
    name = site.queue("echo text; echo done >&3")
    msg_id = site.send(name)
    wait_until(lambda: site.state(name, msg_id) == "done")
    return name, msg_id


@pytest.mark.parametrize("start", ["-1", "x", "9" * 30, "1e9", ""])
def test_a_wrong_offset_harms_nobody(site, ended, start):
    with following(site, *ended, start) as stream:
        assert "text\n" in stream.text()


def test_the_ancestors_client_follows_by_ranges(site):
    name = site.queue("echo one; sleep 0.5; echo two; echo done >&3")
    msg_id = site.send(name)
    path = f"/q/{name}/{msg_id}/log/stdio.log"
    text, asked = "", 0

    def poll():
        nonlocal text, asked
        asked += 1
        answer = site.get(path, Range=f"bytes={len(text.encode())}-")
        if answer.status == 206:
            text += answer.text
        return "two\n" in text

    wait_until(poll)
    assert "one\ntwo\n" in text
    assert site.get(path, Range=f"bytes={len(text) + 9999}-").status == 416


@pytest.mark.slow
def test_a_text_is_found_in_a_log_of_any_size_in_bounded_time(site):
    name = site.queue(
        "echo needle; truncate -s 700000000 stdio.log; echo Needle; echo done >&3"
    )
    msg_id = site.send(name)
    wait_until(lambda: site.state(name, msg_id) == "done")
    path = f"/q/{name}/{msg_id}/log.json?find=NEEDLE"
    found, start = [], 0
    for _ in range(60):
        began = time.monotonic()
        told = site.get(f"{path}&from={start}").json
        assert time.monotonic() - began < 20
        found += told["found"]
        start = told["next"]
        if start is None:
            break
    assert [one["text"] for one in found] == ["needle", "Needle"]
    assert found[1]["at"] == 700_000_000


@pytest.mark.slow
def test_a_stop_ends_open_streams_at_once_and_viewers_are_told(tmp_path):
    with served(tmp_path / "rq") as running:
        name = running.queue("echo on; sleep 60")
        msg_id = running.send(name)
        path = f"/q/{name}/{msg_id}/follow?from=0"
        streams = [Stream(running.port, path) for _ in range(50)]
        for stream in streams:
            stream.until("on\n")
        began = time.monotonic()
        assert running.daemon.stop() == 0
        assert time.monotonic() - began < 20
        kinds = [[kind for kind, _, _ in stream.events()] for stream in streams]
        for stream in streams:
            stream.close()
        assert all("bye" in one for one in kinds)


def test_a_patient_viewer_gets_every_byte_however_far_behind(site):
    name = site.queue("seq 2000000; echo done >&3")
    msg_id = site.send(name)
    wait_until(lambda: site.state(name, msg_id) == "done")
    with following(site, name, msg_id, "0&keep") as stream:
        text = stream.text()
    assert len(text) > 14_000_000
    assert "1999999\n2000000\n" in text


@pytest.mark.parametrize(
    "instead", ["mkfifo stdio.log", "ln -s /dev/zero stdio.log", "mkdir stdio.log"]
)
def test_what_a_script_puts_in_the_place_of_its_log_holds_nobody_up(site, instead):
    queue = f"odd-{instead.split()[0]}"
    site.queue(f"rm stdio.log; {instead}\necho done >&3", queue)
    msg_id = site.send(queue)
    wait_until(lambda: site.get(f"/q/{queue}/{msg_id}/state.json").json == ["done"])
    path = f"/q/{queue}/{msg_id}/log"
    for _ in range(12):  # more than there are threads
        assert site.get(path).status == 200
    assert site.get(f"{path}.json?find=x").status == 200
    with following(site, queue, msg_id) as stream:
        assert stream.text() == ""
    shown = cli("logs", msg_id, root=site.daemon.root.path)
    assert shown.stdout == ""
    assert "Traceback" not in shown.stderr


@pytest.mark.slow
def test_a_stream_ends_when_the_token_of_its_viewer_is_revoked(site):
    root = site.daemon.root
    secret = tokens.new_secret()
    token = Token(
        name="watcher",
        sha256=tokens.digest_of(secret),
        role=Role.VIEWER,
        created=time.time(),
        created_by="ann",
    )
    tokens.create(root, token)
    name = site.queue("while echo tick; do sleep 0.2; done")
    msg_id = site.send(name)
    with following(site, name, msg_id, Authorization=f"Bearer {secret}") as stream:
        stream.until("tick\ntick\n")
        tokens.revoke(root, "watcher")
        while stream.file.readline() != b"0\r\n":
            pass  # the chunk that ends a body; a stream that goes on times out
    site.post(f"/q/{name}/{msg_id}", {"_method": "cancel", "x_format": "json"})


@pytest.mark.slow
def test_a_cookie_of_a_session_that_has_ended_cuts_no_stream_of_who_needs_none(site):
    stale = f"rq_login_{site.port}=" + "0" * 64
    name = site.queue(
        'for i in 1 2 3 4 5 6 7 8 9; do echo "tick $i"; sleep 0.5; done; echo done >&3'
    )
    msg_id = site.send(name)
    with following(site, name, msg_id, Cookie=stale) as stream:
        assert "tick 9\n" in stream.text()


def test_who_takes_no_event_leaves_nothing_behind(tmp_path):
    hub = Hub(SimpleNamespace(root=Root(tmp_path)))
    hub.follow("quick", "20260102.0304.05.006.7", Viewer(0))
    assert hub._watches == {}


def test_one_user_does_not_take_the_logs_from_the_others(tmp_path):
    hub = Hub(SimpleNamespace(root=Root(tmp_path)))
    theirs = {Viewer(0, who="greedy") for _ in range(MOST_OF_ONE)}
    hub._watches["quick", "one"] = SimpleNamespace(viewers=theirs)
    with pytest.raises(Refused, match=f"{MOST_OF_ONE} of them yours"):
        hub.follow("quick", "two", Viewer(0, who="greedy"))
    hub.follow("quick", "two", Viewer(0, who="other"))
    theirs |= {Viewer(0, who="third") for _ in range(MOST_VIEWERS - MOST_OF_ONE)}
    with pytest.raises(Refused, match="0 of them yours"):
        hub.follow("quick", "two", Viewer(0, who="other"))
