"""Attachments and files over REST, there and back, whole and in parts."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from email.utils import formatdate
from urllib.parse import quote, unquote

import pytest
from harness.waiting import wait_until
from harness.web_server import served
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from rq.errors import BadInput
from rq.web.downloads import parse_range, saved_as

pytestmark = pytest.mark.system

# Names that end a header, its quotes, or its encoding, as a script may choose them.
HOSTILE = [
    'quote".txt.bin',
    "line\r\nSet-Cookie: a=b.bin",
    "new\nline.bin",
    "\x7f\x01\x1b[31m.bin",
    "ünïcode-\u202e-\U0001f600.bin",
    "back\\slash.bin",
    "semi;colon=%22.bin",
    " spaces .bin",
]

# Writes what a message's script may leave in its directory.
FILES = """
printf 0123456789 > digits.txt
ln -s /etc/passwd link.txt
mkfifo pipe.txt
echo '<script>1</script>' > page.html
echo secret > .hidden
echo done ok >&3
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("files")) as found:
        found.queue(FILES, "plain")
        yield found


def upload(web, msg_id, data, name="a.bin", queue="plain"):
    path = f"/q/{queue}/{msg_id}/attach/new"
    return web.multipart(path, {"x_format": "json"}, {"filedata": (name, data)})


@pytest.mark.slow
def test_an_attachment_comes_back_as_it_was_sent(web):
    data = os.urandom(3_000_000) + b"\r\n--not the end\r\n"
    msg_id = web.send("plain", _method="prep")
    md5 = hashlib.md5(data).hexdigest()
    assert upload(web, msg_id, data).json == ["ok", f"{md5}-Attached successfully"]
    answer = web.get(f"/q/plain/{msg_id}/attach/a.bin")
    assert answer.body == data
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    found = web.get(f"/q/plain/{msg_id}.json").json["_attachments"]["a.bin"]
    assert (found["md5"], found["size"]) == (md5, len(data))


# As systems name files, and how a browser writes that into a form.
OF_OTHER_SYSTEMS = [
    (" [1] 100%25 #2?&.txt", " [1] 100%25 #2?&.txt"),
    ("u\u0308ber;\u00fc.txt", "u\u0308ber;\u00fc.txt"),
    ("\U0001f468\u200d\U0001f469 <b>.png", "\U0001f468\u200d\U0001f469 <b>.png"),
    ('say "hi" `id`.txt', "say %22hi%22 `id`.txt"),
    ("\u00fc" * 125, "\u00fc" * 125),
]


@pytest.mark.parametrize(("name", "written"), OF_OTHER_SYSTEMS)
def test_a_file_keeps_its_name_by_form_by_parts_and_back(web, name, written):
    for by_form in (True, False):
        msg_id = web.send("plain", _method="prep")
        at = f"/q/plain/{msg_id}/attach/{quote(name)}"
        if by_form:
            answer = upload(web, msg_id, b"cat", written)
        else:
            told = {
                "X_RQ_SHA256": hashlib.sha256(b"cat").hexdigest(),
                "Content_Range": "bytes 0-2/3",
            }
            answer = web.ask("PUT", at, b"cat", **told)
        assert answer.json[0] == "ok", answer.text
        assert list(web.get(f"/q/plain/{msg_id}.json").json["_attachments"]) == [name]
        page = web.get(f"/q/plain/{msg_id}").text
        assert f'<a href="{at}">{escape(name)}</a>' in page
        back = web.get(at)
        assert back.body == b"cat"
        check_header(back.headers["content-disposition"], name)
        form = {"_method": "delete", "x_format": "json"}
        assert web.post(at, form).json[0] == "ok"


def test_a_page_shows_the_pictures_among_the_attachments_and_nothing_else(web):
    msg_id = web.send("plain", _method="prep")
    plot = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    upload(web, msg_id, plot, "plot.svg")
    upload(web, msg_id, b"<script>alert(1)</script>", "page.html")
    at = f"/q/plain/{msg_id}/attach"
    page = web.get(f"/q/plain/{msg_id}").text
    assert f'<img src="{at}/plot.svg" alt="plot.svg"' in page
    assert f'<img src="{at}/page.html"' not in page
    # As a picture it cannot run anything; opened as a page it is saved, or in a sandbox.
    answer = web.get(f"{at}/plot.svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"].startswith("sandbox;")


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_a_file_whose_form_does_not_end_is_not_attached(web, size):
    msg_id = web.send("plain", _method="prep")
    assert upload(web, msg_id, b"all of it").json[0] == "ok"
    head = (
        b'--mark\r\nContent-Disposition: form-data; name="filedata"; filename="a.bin"'
    )
    answer = web.ask(
        "POST",
        f"/q/plain/{msg_id}/attach/new",
        head + b"\r\n\r\n" + os.urandom(size),
        Content_Type="multipart/form-data; boundary=mark",
    )
    assert answer.status == 400
    assert web.get(f"/q/plain/{msg_id}/attach/a.bin").body == b"all of it"


def test_an_empty_file_is_an_attachment(web):
    msg_id = web.send("plain", _method="prep")
    assert upload(web, msg_id, b"").json[0] == "ok"
    assert web.get(f"/q/plain/{msg_id}/attach/a.bin").body == b""


def test_directories_are_cut_off_a_file_name(web):
    msg_id = web.send("plain", _method="prep")
    assert upload(web, msg_id, b"1", "../../a.txt").json[0] == "ok"
    assert upload(web, msg_id, b"2", "C:\\\\dir\\\\b.txt").json[0] == "ok"
    found = web.get(f"/q/plain/{msg_id}.json").json["_attachments"]
    assert sorted(found) == ["a.txt", "b.txt"]


def test_a_hostile_name_is_refused_and_nothing_is_left(web):
    msg_id = web.send("plain", _method="prep")
    for name in ("a\x07b", "\u202eb", "-rf", ".hidden"):
        assert upload(web, msg_id, b"x", name).json[0] == "fail"
    assert "_attachments" not in web.get(f"/q/plain/{msg_id}.json").json
    for name in (";rm -rf $HOME;", "`id`", "<b>x<b>"):  # no slash, and no shell here
        assert upload(web, msg_id, b"x", name).json[0] == "ok"
    assert list(web.daemon.root.uploads.iterdir()) == []


def test_an_upload_without_a_file_is_404(web):
    msg_id = web.send("plain", _method="prep")
    path = f"/q/plain/{msg_id}/attach/new"
    assert web.multipart(path, {"x_format": "json"}).status == 404
    assert web.multipart(path, {}, {"filedata": ("", b"x")}).status == 404
    refused = web.post(path, {"filedata": "x"})
    assert refused.status == 415
    assert refused.json["detail"].endswith("read here; send multipart/form-data.")


def test_only_a_prepared_message_takes_attachments(web):
    msg_id = web.send("plain")
    wait_until(lambda: web.state("plain", msg_id) == "done")
    late = ["fail", "msg already commited"]
    assert upload(web, msg_id, b"x" * 500_000).json == late
    refused = upload(web, "20260102.0304.05.006.7", b"x")
    assert refused.json == ["fail", "cannot find message"]  # its sender begins anew
    assert upload(web, "x", b"x").json == ["fail", "cannot find message"]


def test_an_upload_that_was_already_accepted_is_so_again(web):
    msg_id = web.send("plain", _method="prep")
    first = upload(web, msg_id, b"cat").json
    form = {"_method": "commit", "x_format": "json"}
    assert web.post(f"/q/plain/{msg_id}", form).json == ["ok", "msg commited"]
    assert upload(web, msg_id, b"cat").json == first
    assert upload(web, msg_id, b"dog").json == ["fail", "msg already commited"]


def test_an_attachment_is_removed(web):
    msg_id = web.send("plain", _method="prep")
    upload(web, msg_id, b"x")
    path = f"/q/plain/{msg_id}/attach/a.bin"
    fields = {"_method": "delete", "x_format": "json"}
    assert web.post(path, fields).json == ["ok", "Attachment deleted successfully"]
    assert web.get(path).status == 404
    assert web.post(path, fields).json[0] == "fail"
    assert web.post(path, {"_method": "x"}).status == 400


@pytest.mark.slow
def test_an_upload_holds_a_piece_of_a_file_in_memory(web, tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    msg_id = web.send("plain", _method="prep")
    pids = [web.daemon.child("web")["pid"], *children(web.daemon.child("web")["pid"])]
    address = f"http://127.0.0.1:{web.port}/q/plain/{msg_id}/attach/new"
    command = ["curl", "-s", "-F", "x_format=json", "-F", f"filedata=@{large}", address]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Attached successfully" in done.stdout
    assert max(peak(pid) for pid in pids) < 100 * 1024
    got = subprocess.run(
        ["curl", "-s", f"{address.removesuffix('new')}large", "-o", tmp_path / "got"],
        check=True,
    )
    assert got.returncode == 0
    assert (tmp_path / "got").stat().st_size == large.stat().st_size
    assert max(peak(pid) for pid in pids) < 100 * 1024


def children(pid):
    found = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(one) for one in found.stdout.split()]


def peak(pid):
    """Return the most memory a process has held, in KiB."""
    with open(f"/proc/{pid}/status") as file:
        return int(next(x for x in file if x.startswith("VmHWM")).split()[1])


# ---- what scripts wrote


@pytest.fixture(scope="module")
def ran(web):
    """A message whose script has left files; the path of its log directory."""
    msg_id = web.send("plain")
    wait_until(lambda: web.state("plain", msg_id) == "done")
    return f"/q/plain/{msg_id}/log"


def test_files_of_a_script_are_sent(web, ran):
    log = web.get(f"{ran}/stdio.log")
    assert (log.status, log.kind) == (200, "text/plain")
    assert "RQ START" in log.text
    page = web.get(f"{ran}/page.html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"


def test_no_link_pipe_hidden_or_absent_file_is_sent(web, ran):
    for name in ("link.txt", "pipe.txt", ".hidden", "none.txt"):
        assert web.get(f"{ran}/{name}").status == 404, name
    for name in ("..", "..%2fmsg"):
        assert web.get(f"{ran}/{name}").status in (400, 404), name


def test_ranges_are_sent_as_asked(web, ran):
    path = f"{ran}/digits.txt"
    for wanted, body, shown in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ):
        answer = web.get(path, Range=wanted)
        assert (answer.status, answer.body) == (206, body), wanted
        assert answer.headers["content-range"] == shown
        assert answer.headers["content-length"] == str(len(body))
    for wanted in ("bytes=10-", "bytes=-0", f"bytes={'9' * 30}-"):
        answer = web.get(path, Range=wanted)
        assert answer.status == 416, wanted
        assert answer.headers["content-range"] == "bytes */10"
    for wanted in ("bytes=1-2,4-5", "lines=1-2", "bytes=4-2", "bytes=-", "x"):
        answer = web.get(path, Range=wanted)
        assert (answer.status, answer.body) == (200, b"0123456789"), wanted


def test_what_the_asker_has_is_not_sent_again(web, ran):
    path = f"{ran}/digits.txt"
    first = web.get(path)
    etag, changed = first.headers["etag"], first.headers["last-modified"]
    assert web.get(path, If_None_Match=etag).status == 304
    assert web.get(path, If_Modified_Since=changed).status == 304
    assert web.get(path, If_Modified_Since=formatdate(0, usegmt=True)).status == 200
    assert web.get(path, Range="bytes=1-2", If_Range=etag).status == 206
    assert web.get(path, Range="bytes=1-2", If_Range='"other"').status == 200
    head = web.ask("HEAD", path)
    assert (head.headers["content-length"], head.body) == ("10", b"")


def test_a_log_that_grows_can_be_read_on_by_ranges(web):
    name = web.queue("for n in 1 2 3 4 5 6; do echo $n; sleep .1; done; echo done >&3")
    msg_id = web.send(name)
    path, got = f"/q/{name}/{msg_id}/log/stdio.log", b""

    def more():
        nonlocal got
        ended = web.state(name, msg_id) == "done"  # asked first: its log is whole then
        answer = web.get(path, Range=f"bytes={len(got)}-")
        if answer.status == 206:
            got += answer.body
        return ended and answer.status == 416

    wait_until(more)
    assert got == web.get(path).body
    assert got.count(b"\n") >= 8


def test_files_are_sent_while_nobody_answers_for_the_queue(web):
    name = web.queue(FILES)
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "done")
    web.post(f"/q/{name}/adminoper", {"down": "1"})
    wait_until(lambda: web.get(f"/q/{name}.json").json["status"] == "DOWN")
    path = f"/q/{name}/{msg_id}/log/digits.txt"
    wait_until(lambda: web.get(path).body == b"0123456789")


numbers = st.integers(0, 30)


@given(numbers, numbers, numbers)
def test_a_range_is_never_outside_its_file(first, last, size):
    data = bytes(range(size))
    for header in (f"bytes={first}-{last}", f"bytes={first}-", f"bytes=-{last}"):
        try:
            part = parse_range(header, size)
        except BadInput:
            continue
        if part is not None:
            start, end = part
            assert 0 <= start < end <= size
            if "=-" in header:
                assert data[start:end] == data[-last:]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_file_in_job_breaks_or_injects_a_header(web, name):
    coded = base64.b64encode(name.encode()).decode()
    script = f"""f=$(printf %s {coded} | base64 -d; printf x); printf ok > "${{f%x}}"
    echo done >&3"""
    queue = web.queue(script)
    msg_id = web.send(queue)
    wait_until(lambda: web.state(queue, msg_id) == "done")
    answer = web.get(f"/q/{queue}/{msg_id}/log/{quote(name, safe='')}")
    assert "set-cookie" not in answer.headers
    if answer.status == 400 and (not name.isprintable() or "\\" in name):
        return  # no address with such characters is answered at all
    assert answer.body == b"ok"
    check_header(answer.headers["content-disposition"], name)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_header_that_names_a_file_is_one_line_of_plain_characters(name):
    check_header(saved_as(name), name)


def check_header(header, name):
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2
    whole = header.partition("filename*=UTF-8''")[2]
    assert (unquote(whole) if whole else header.split('"')[1]) == name


PLANTED = {
    "a hard link": "ln {v} x.txt; ln {v} x.bin",
    "a link": "ln -s {v} x.txt; ln -s {v} x.bin",
    "a directory that is a link": "cd ..; rm -rf job; ln -s {d} job",
}


@pytest.mark.parametrize("what", PLANTED)
def test_nothing_that_was_planted_is_sent_or_shown(web, tmp_path, what):
    for name in ("x.txt", "x.bin", "stdio.log"):
        (tmp_path / name).write_text("the secret of another\n")
    plant = PLANTED[what].format(v=tmp_path / "x.txt", d=tmp_path)
    queue = web.queue(f"{plant}\necho done >&3")
    msg_id = web.send(queue)
    wait_until(lambda: web.state(queue, msg_id) == "done")
    for path in ("log/x.txt", "log/x.bin", "log/stdio.log", "log/x.txt/tail", "log"):
        answer = web.get(f"/q/{queue}/{msg_id}/{path}")
        assert b"the secret" not in answer.body
    found = web.get(f"/q/{queue}/{msg_id}/log.json?find=secret").json
    assert found.get("found") in (None, [])


@pytest.mark.parametrize("name", ["a.js", "a.mjs", "a.css"])
def test_what_somebody_attached_is_no_script_nor_style_to_a_page(web, name):
    form = {"mesg": '{"dest": "plain", "_method": "prep"}'}
    answer = web.post("/q/plain/new_message", form)
    msg_id = answer.json[1].rpartition("/")[2]
    assert upload(web, msg_id, b"alert(1)", name).json[0] == "ok"
    answer = web.get(f"/q/plain/{msg_id}/attach/{name}")
    assert answer.kind == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
