"""What a sender names in `param1` is fetched only where the queue may go."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import socket
import threading
from pathlib import Path

import pytest
from pyarrow import fs

from rq.errors import BadConfig, BadInput, Refused, RQError, Unreachable
from rq.spark import attachments, compression, remote
from rq.spark.given import Given
from rq.spark.remote import Allow

HERE = ["127.0.0.1"]


class Site(http.server.BaseHTTPRequestHandler):
    """Answers with the status, and the place, that a path names."""

    def do_GET(self):
        _, status, to = self.path.split("/", 2)
        self.send_response(int(status))
        self.send_header("Content-Length", "3")
        if to:
            self.send_header("Location", to)
        self.end_headers()
        self.wfile.write(b"log")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def fetch(where, *allow):
    with contextlib.closing(remote.stream(where, remote.allow(allow))) as source:
        return source.read(100)


def test_an_internal_address_is_fetched_only_if_the_queue_allows_it(site):
    with pytest.raises(
        Refused, match=r"an internal address; .*\"allow\": \[\"127.0.0.1\"\]"
    ):
        fetch(f"{site}/200/")
    assert fetch(f"{site}/200/", *HERE) == b"log"
    assert fetch(f"{site}/302//200/", *HERE) == b"log"


def test_a_scheme_in_capitals_names_what_is_read_and_not_nothing(site):
    """Nor a way around: it is judged as any other."""
    where = site.replace("http", "HTTP", 1) + "/200/"
    message = Given("m", Path("/nowhere"), {"param1": where})
    [file] = attachments.files([message], [])
    assert fetch(file.where, *HERE) == b"log"
    with pytest.raises(Refused, match="internal address"):
        fetch(file.where)
    message = Given("m", Path("/nowhere"), {"param1": "S3://Logs/a"})
    with pytest.raises(BadInput, match="may not read s3://Logs"):
        attachments.files([message], ["s3://logs/"])


def test_where_a_redirect_leads_is_judged_as_the_first_address_is(site):
    port = site.rpartition(":")[2]
    for to in ("http://[::1]/", "http://169.254.169.254/latest"):
        with pytest.raises(Refused, match="internal address"):
            fetch(f"{site}/302/{to}", f"127.0.0.1:{port}")
    for to in ("file:///etc/passwd", "s3://logs/a"):
        with pytest.raises(BadInput, match="no address of the web"):
            fetch(f"{site}/302/{to}", *HERE)
    with pytest.raises(BadInput, match="more than 5 redirects"):
        fetch(f"{site}/302/" + "/302/" * 9, *HERE)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1%25lo]",
        "0.0.0.0",
        "localhost",
        "localhost.",
        "\uff11\uff12\uff17.0.0.1",
        "example.com@127.0.0.1",
        "8.8.8.8:80@127.0.0.1",
        "127.0.0.1#@8.8.8.8",
        "127.0.0.1\\@8.8.8.8",
    ],
)
def test_no_way_to_write_an_internal_host_leads_there(host):
    """Nor does one that is written so get a request at all."""
    with pytest.raises((RQError, OSError)) as failed:
        fetch(f"http://{host}/latest")
    assert not isinstance(failed.value, Unreachable | ConnectionError | TimeoutError)


def test_the_address_that_was_judged_is_the_one_that_is_asked(site, monkeypatch):
    """A name that leads elsewhere when it is looked up again is not looked up again."""
    port = int(site.rpartition(":")[2])
    real, asked = socket.getaddrinfo, []

    def turning(host, *args, **kwargs):
        asked.append(host)
        place = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return real(place, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", turning)
    assert fetch(f"http://logs.example:{port}/200/", "127.0.0.1") == b"log"
    with pytest.raises(Refused, match=r"127\.0\.0\.2"):
        fetch(f"http://logs.example:{port}/200/", "127.0.0.1")


def test_a_password_goes_to_no_other_host(site):
    """What an address says before its @ is not repeated to where a redirect leads."""
    user = site.replace("http://", "http://ann:secret@")
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Site,
            "parse_request",
            lambda self: (
                http.server.BaseHTTPRequestHandler.parse_request(self)
                and not seen.append(self.headers["Authorization"])
            ),
        )
        assert fetch(f"{user}/302/{site}/200/", *HERE) == b"log"
    assert [entry is None for entry in seen] == [False, True]


@pytest.mark.parametrize(("status", "kind"), [(404, BadInput), (503, Unreachable)])
def test_a_host_that_is_away_is_asked_again_and_a_wrong_page_is_not(site, status, kind):
    with pytest.raises(kind, match=str(status)) as failed:
        fetch(f"{site}/{status}/", *HERE)
    assert remote.is_passing(failed.value) is (kind is Unreachable)
    assert remote.is_passing(OSError("AWS Error NETWORK_CONNECTION during ListObjects"))
    assert not remote.is_passing(OSError("AWS Error NO_SUCH_BUCKET during ListObjects"))


@pytest.mark.parametrize(
    "where",
    [
        "s3://other/a",
        "s3://logs/b",
        "s3://logs/income",
        "s3://logs/incoming2/a",
        "s3://logs/",
        "s3://logs/incoming/../b",
        "s3://user:secret@logs/incoming/a",
        "s3://logs@other/incoming/a",
        "s3://logs/incoming/a?endpoint_override=store.example",
        "s3://logs/incoming/a?endpoint_override=10.0.0.2:80",
        "s3://logs/incoming/a?allow_bucket_creation=true",
        "s3://logs/incoming/a?scheme=file",
        "s3://logs/incoming/a?region=x.evil.example/",
        "s3://logs/incoming/a?region=evil.example%2523",
        "s3://logs/incoming/a?region=",
        "s3://logs/incoming/a?region=EU",
        "s3://logs/incoming/%2e%2e/b",
        "s3://../incoming/a",
        "s3://logs%2fincoming/a",
        "s3:///logs/incoming/a",
    ],
)
def test_a_store_is_read_only_where_the_queue_names_it(where):
    may = remote.allow(["s3://logs/incoming/", "10.0.0.1", "*.example"])
    with pytest.raises(RQError):
        remote.stream(where, may)
    with pytest.raises(RQError):
        remote.below(where, may)


@pytest.mark.parametrize("text", ["http://host/", "a b", "host:99999999", "1.2.3/99"])
def test_what_allows_nothing_is_named(text):
    with pytest.raises(BadConfig, match="allow"):
        remote.allow([text])
    with pytest.raises(BadConfig, match="RQ_SPARK_ALLOW"):
        remote.texts({"RQ_SPARK_ALLOW": '"s3://logs"'})
    assert remote.texts({}) == []


def put(end, files):
    """Put files into the bucket `logs`."""
    system, _ = fs.FileSystem.from_uri(f"s3://logs/{end}&allow_bucket_creation=true")
    system.create_dir("logs")
    for name, data in files.items():
        with system.open_output_stream(f"logs/{name}", compression=None) as stream:
            stream.write(data)


def test_what_a_file_in_a_store_is_its_bytes_tell_and_not_its_name(store):
    end, host = store
    put(end, {"in/plain.gz": b"a line", "in/b %25?.txt": gzip.compress(b"packed")})
    may = remote.allow(["s3://logs/in/", host])
    names = remote.below(f"s3://logs/in/{end}", may)
    assert len(names) == 2
    texts = set()
    for name in names:
        with compression.opened(name, may) as stream:
            texts.add(stream.read(100))
    assert texts == {b"a line", b"packed"}


def test_a_store_that_one_message_names_wrongly_fails_that_message(store, tmp_path):
    end, host = store
    put(end, {"good/a.log": b"a line"})
    given = {
        "good": f"s3://logs/good/{end}",
        "missing": f"s3://logs/none/{end}",
        "foreign": f"s3://secrets/{end}",
        "nowhere": f"s3://logs/good/{end.replace(host, '127.0.0.1:1')}",
    }
    messages = [Given(name, tmp_path, {"param1": at}) for name, at in given.items()]
    every, bad = attachments.listed(messages, ["s3://logs", "127.0.0.1"])
    assert [file.msg_id for file in every] == ["good"]
    found = {entry.msg_id: entry for entry in bad}
    assert found.keys() == {"missing", "foreign", "nowhere"}
    assert "may not read s3://secrets" in found["foreign"].why
    assert [name for name, entry in found.items() if entry.is_passing] == ["nowhere"]
    with compression.opened(every[0].where, remote.allow(["s3://logs", host])) as one:
        assert one.read(100) == b"a line"
    assert Allow() == remote.allow([])
