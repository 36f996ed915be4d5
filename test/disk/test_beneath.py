"""Files that a script's user can touch: whatever lies in their place, nothing else is opened."""

import errno
import os
import socket
import stat
import threading
import time

import pytest
from harness.limits import free_descriptors

from rq.errors import NotPlain
from rq.files import beneath, durable

SECRET = b"the secret of another\n"
OPENINGS = 10_000


@pytest.fixture(params=["openat2", "steps"])
def way(request, monkeypatch):
    """Both ways of opening: the system call, and the one without it."""
    if request.param == "steps":
        monkeypatch.setattr(beneath, "_open", beneath.by_steps)
    elif beneath._open is beneath.by_steps:
        pytest.skip("this kernel has no openat2 -> Linux 5.6")
    return request.param


@pytest.fixture
def place(tmp_path):
    """A folder `run/ID/job`, a victim beside it, and a descriptor of what is above."""
    (tmp_path / "queue/run/ID/job").mkdir(parents=True)
    (tmp_path / "victim").write_bytes(SECRET)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/stdio.log").write_bytes(SECRET)
    fd = os.open(tmp_path / "queue", os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path, fd
    os.close(fd)


def plant_symlink(path, top):
    path.symlink_to(top / "victim")


def plant_dangling(path, top):
    path.symlink_to(top / "made-by-nobody")


def plant_hard_link(path, top):
    os.link(top / "victim", path)


def plant_fifo(path, top):
    os.mkfifo(path)


def plant_directory(path, top):
    path.mkdir()


def plant_socket(path, top):
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def plant_device(path, top):
    if os.geteuid() != 0:
        pytest.skip("a device is made by root -> sudo ./test/run_tests.sh disk")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


PLANTS = [
    plant_symlink,
    plant_dangling,
    plant_hard_link,
    plant_fifo,
    plant_directory,
    plant_socket,
    plant_device,
]
planted = pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__)
LOG = "run/ID/job/stdio.log"


@planted
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND])
def test_what_is_no_plain_file_of_one_name_is_not_opened(way, place, plant, flags):
    top, fd = place
    plant(top / "queue" / LOG, top)
    with pytest.raises(OSError, match=r".+"):
        beneath.open_plain(LOG, fd, flags)
    assert (top / "victim").read_bytes() == SECRET


@planted
@pytest.mark.parametrize("name", ["status", "status.tmp"])
@pytest.mark.parametrize("write", [durable.write_new, durable.replace])
def test_what_is_written_reaches_no_other_file(way, place, plant, name, write):
    top, fd = place
    folder = top / "queue/run/ID"
    plant(folder / name, top)
    try:
        write("run/ID/status", b"new", fd)
    except IsADirectoryError:
        assert plant is plant_directory
    else:
        assert (folder / "status").read_bytes() == b"new"
        assert stat.S_ISREG((folder / "status").lstat().st_mode)
    assert (top / "victim").read_bytes() == SECRET
    assert not (top / "made-by-nobody").exists()


@planted
def test_a_durable_write_reaches_no_other_file(place, plant):
    top, _ = place
    job = top / "queue/run/ID/job"
    plant(job / ".relay.json.tmp", top)
    try:
        durable.write_durable(job / "relay.json", b"{}")
    except IsADirectoryError:
        assert plant is plant_directory
    else:
        assert (job / "relay.json").read_bytes() == b"{}"
    assert (top / "victim").read_bytes() == SECRET
    assert not (top / "made-by-nobody").exists()


@pytest.mark.parametrize("part", ["run", "run/ID", "run/ID/job"])
def test_a_link_in_the_place_of_a_directory_is_not_followed(way, place, part):
    top, fd = place
    os.rename(top / "queue" / part, top / "away")
    target = top / "elsewhere"
    (target / "ID").symlink_to(target)
    (target / "job").symlink_to(target)
    (top / "queue" / part).symlink_to(target)
    for act in (
        lambda: beneath.open_plain(LOG, fd),
        lambda: durable.write_new(LOG, b"x", fd),
        lambda: durable.replace(LOG, b"x", fd),
        lambda: durable.allow(LOG, 0o777, fd),
        lambda: durable.unlink(LOG, fd),
    ):
        with pytest.raises(OSError, match=r".+"):
            act()
    assert (target / "stdio.log").read_bytes() == SECRET
    assert stat.S_IMODE((target / "stdio.log").stat().st_mode) != 0o777


@pytest.mark.parametrize(
    "path", ["../victim", "/etc/passwd", "run/../../victim", "run/ID/../../../victim"]
)
def test_no_path_leads_out(way, place, path):
    _, fd = place
    with pytest.raises(OSError, match=r".+"):
        beneath.open_any(path, os.O_RDONLY, fd)


def test_a_huge_file_of_holes_is_refused_before_it_is_read(way, place):
    top, fd = place
    with (top / "queue/run/ID/msg").open("wb") as file:
        file.truncate(1_500_000_000)
    with pytest.raises(NotPlain, match="1500000000 bytes"):
        beneath.read("run/ID/msg", fd, 2**20)


class Attacker(threading.Thread):
    """Swaps a name for another and back, in a loop."""

    def __init__(self, path, other):
        super().__init__(daemon=True)
        self._path, self._other = path, other
        self._aside = path.with_name("aside")
        self._stop_now = threading.Event()
        self.swaps = 0

    def run(self):
        while not self._stop_now.is_set():
            os.rename(self._path, self._aside)
            os.rename(self._other, self._path)
            os.rename(self._path, self._other)
            os.rename(self._aside, self._path)
            self.swaps += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._stop_now.set()
        self.join()


def other_of(top, kind):
    other = top / "queue/run/ID/other"
    if kind == "link to a directory":
        other.symlink_to(top / "elsewhere")
        return top / "queue/run/ID/job", other
    other = top / "queue/run/ID/job/other"
    if kind == "link":
        other.symlink_to(top / "victim")
    else:
        os.link(top / "victim", other)
    return top / "queue" / LOG, other


@pytest.mark.parametrize("kind", ["link to a directory", "link", "hard link"])
def test_ten_thousand_openings_while_somebody_swaps_reach_no_other_file(
    way, place, kind
):
    top, fd = place
    (top / "queue" / LOG).write_bytes(b"ours")
    path, other = other_of(top, kind)
    opened = tries = 0
    until = time.monotonic() + 60
    with Attacker(path, other) as attacker:
        while tries < OPENINGS or not (opened and attacker.swaps > 10):
            assert time.monotonic() < until, "the attacker did not get to swap"
            tries += 1
            try:
                found = beneath.open_plain(LOG, fd)
            except OSError:
                continue
            opened += 1
            data = os.read(found, 100)
            os.close(found)
            assert data == b"ours"


def test_a_hard_link_that_is_taken_away_while_rq_looks_is_not_trusted(way, place):
    """Its file has one name again when it is looked at: that of the victim."""
    top, fd = place
    path, stop = top / "queue" / LOG, threading.Event()

    def swap():
        while not stop.is_set():
            os.link(top / "victim", path)
            os.unlink(path)

    attacker = threading.Thread(target=swap, daemon=True)
    attacker.start()
    try:
        for _ in range(OPENINGS):
            with pytest.raises(OSError, match=r".+"):
                os.close(beneath.open_plain(LOG, fd))
    finally:
        stop.set()
        attacker.join()


def test_a_file_that_is_replaced_while_rq_looks_is_not_said_to_have_two_names(
    way, place
):
    top, fd = place
    path, stop = top / "queue" / LOG, threading.Event()
    path.write_bytes(b"ours")

    def replace():
        while not stop.is_set():
            path.with_name("new").write_bytes(b"ours")
            os.rename(path.with_name("new"), path)

    owner = threading.Thread(target=replace, daemon=True)
    owner.start()
    try:
        for _ in range(OPENINGS):
            opened = beneath.open_plain(LOG, fd)
            assert os.read(opened, 100) == b"ours"
            os.close(opened)
    finally:
        stop.set()
        owner.join()


def deep(path, levels):
    """Make directories one in another, deeper than any path may be long."""
    at = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_what_is_thousands_of_levels_deep_is_removed(place):
    top, fd = place
    deep(top / "queue/run/ID", 5000)
    durable.remove_tree("run/ID", fd)
    assert os.listdir(top / "queue/run") == []


def test_removing_follows_no_link_and_takes_every_kind_along(place):
    top, fd = place
    for number, plant in enumerate(PLANTS):
        plant(top / f"queue/run/ID/{number}", top)
        plant(top / f"queue/run/ID/job/{number}", top)
    (top / "queue/run/ID/up").symlink_to(top / "elsewhere")
    durable.remove_tree("run/ID", fd)
    assert os.listdir(top / "queue/run") == []
    assert (top / "victim").read_bytes() == SECRET
    assert (top / "elsewhere/stdio.log").read_bytes() == SECRET


def test_a_link_in_the_place_of_a_tree_is_removed_alone(place):
    top, fd = place
    (top / "queue/run/L").symlink_to(top / "elsewhere")
    durable.remove_tree("run/L", fd)
    assert (top / "elsewhere/stdio.log").exists()
    assert os.listdir(top / "queue/run") == ["ID"]


def test_putting_a_folder_right_changes_no_mode_elsewhere(place):
    top, fd = place
    os.chmod(top / "elsewhere", 0o700)
    os.chmod(top / "victim", 0o600)
    os.link(top / "victim", top / "queue/run/ID/status")
    (top / "queue/run/L").symlink_to(top / "elsewhere")
    durable.clear_way("run/ID", ("status",), fd)
    durable.clear_way("run/L", ("status",), fd)
    with pytest.raises(FileNotFoundError):
        durable.allow("run/L", 0o777, fd)
    assert stat.S_IMODE((top / "elsewhere").stat().st_mode) == 0o700
    assert stat.S_IMODE((top / "victim").stat().st_mode) == 0o600
    assert sorted(os.listdir(top / "queue/run/ID")) == ["job"]


def test_a_file_whose_names_cannot_be_counted_now_is_not_said_to_have_two(place, way):
    top, fd = place
    (top / "queue/run/ID/msg").write_bytes(b"{}")
    with free_descriptors(1), pytest.raises(OSError, match="Too many open files") as it:
        beneath.open_plain("run/ID/msg", fd)
    assert not isinstance(it.value, NotPlain)
    os.close(beneath.open_plain("run/ID/msg", fd))


def test_what_cannot_be_looked_at_now_is_not_removed(place, monkeypatch):
    top, fd = place
    (top / "queue/run/ID/msg").write_bytes(b"{}")

    def lacks(*args, **kwargs):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lacks)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            durable.clear_way("run/ID", ("msg",), fd)
    assert (top / "queue/run/ID/msg").read_bytes() == b"{}"
