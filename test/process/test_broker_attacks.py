"""What a broker makes of odd files, odd paths, and bytes that come one at a time."""

import json
import os

import pytest
from harness.broker import Refused, broker_in, command

pytestmark = pytest.mark.process

LARGE = b"x" * (1024 * 1024)


def test_a_command_comes_byte_by_byte(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        data = command("ADDJOB", "q", b"b\r\n*1", 0) + b"QLEN q\r\n" + command("PING")
        for at in range(len(data)):
            client.socket.sendall(data[at : at + 1])
        assert client.answer().startswith("D-")
        assert client.answer() == 1
        assert client.answer() == "PONG"


def test_odd_things_among_the_bodies_are_no_bodies_and_hinder_nothing(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        job_id = client.ask("ADDJOB", "q", LARGE, 0)
        (path,) = (broker.directory / "bodies").iterdir()
        start, _, number = path.name.partition("-")
        links = [path.with_name(f"{start}-{int(number) + n}") for n in (1, 2)]
        for link in links:
            link.symlink_to(precious)
        answers = [client.ask("ADDJOB", "q", LARGE, 0) for _ in range(3)]
        assert not isinstance(answers[-1], Refused), answers
        path.with_name("folder").mkdir()
        path.with_name("folder").joinpath("file").touch()
        path.with_name("nowhere").symlink_to(tmp_path / "nowhere")
        client = broker.restart()
        added = [each for each in (job_id, *answers) if not isinstance(each, Refused)]
        got = client.ask("GETJOB", "COUNT", 9, "FROM", "q")
        assert [each[1].decode() for each in got] == added
        assert all(each[2] == LARGE for each in got)
        assert client.ask("ACKJOB", *added) == len(added)
        assert precious.read_bytes() == b"mine"
        assert "Traceback" not in broker.told()


def test_jobs_whose_body_is_lost_are_named_and_take_no_others_with_them(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        lost = client.ask("ADDJOB", "q", LARGE, 0, "RETRY", 0)
        (path,) = (broker.directory / "bodies").iterdir()
        path.unlink()
        whole = client.ask("ADDJOB", "q", LARGE, 0, "RETRY", 0)
        got = client.ask("GETJOB", "COUNT", 2, "FROM", "q")
        assert got == [[b"q", whole.encode(), LARGE]]
        assert f"q {lost}" in broker.told()
        alone = client.ask("ADDJOB", "q", LARGE, 0, "RETRY", 0)
        path.with_name(path.name[:-1] + "3").unlink()
        assert "cannot be read" in client.ask("GETJOB", "FROM", "q")
        assert f"q {alone}" in broker.told()


def test_settings_are_kept_where_the_file_was_damaged(tmp_path):
    with broker_in(tmp_path / "root", maxclients=77) as broker:
        client = broker.start()
        path = tmp_path / "root" / "config" / "broker.json"
        path.write_bytes(b'{"enabled": tr\xff')
        assert client.ask("CONFIG", "SET", "maxclients", 78) == "OK"
        assert client.ask("CONFIG", "REWRITE") == "OK"
        assert json.loads(path.read_text())["maxclients"] == 78
        path.unlink()
        path.mkdir()
        assert isinstance(client.ask("CONFIG", "REWRITE"), Refused)
        assert client.ask("PING") == "PONG"
        assert "Traceback" not in broker.told()


@pytest.mark.parametrize("odd", ["a directory", "no directory", "a link to a file"])
def test_a_socket_cannot_be_just_anywhere(tmp_path, odd):
    path = tmp_path / "place"
    if odd == "a directory":
        path.mkdir()
    elif odd == "a link to a file":
        (tmp_path / "file").write_text("mine")
        path.symlink_to(tmp_path / "file")
    else:
        path = path / "jobs.sock"
    with broker_in(tmp_path / "root", unixsocket=str(path)) as broker:
        broker.begin()
        assert broker.process.wait(20) in (1, 3)
        assert str(path) in broker.told()
        assert "Traceback" not in broker.told()
    assert odd != "a link to a file" or os.path.islink(path)


def test_a_directory_that_is_none_is_told_in_a_sentence(tmp_path):
    node = tmp_path / "node"
    node.write_text("mine")
    with broker_in(node) as broker:
        broker.begin()
        assert broker.process.wait(20) == 1
        assert f"{node}/journal cannot be used: Not a directory" in broker.told()
