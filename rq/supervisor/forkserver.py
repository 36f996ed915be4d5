"""The fork server: has everything imported that a queue process needs, forks on request.

Run by the supervisor, with a socket pair on descriptor 0. It has no loop, no thread, no
lock: what is forked from it starts clean and shares its memory. A request is one JSON
line with two descriptors (the line to the supervisor, life), and with the listening socket
of a queue that was parked, and where its journal ended; the answers are `{"name", "pid"}` and
`{"pid", "exit"}`. It ends at the end of the socket, and its children do not.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from rq.config import settings
from rq.config.parked import End, Listens
from rq.proc import daemon, descriptors

FDS_PER_REQUEST = 2
_READ = 64 * 1024

# Its name, its line to the supervisor, life; if it was parked its socket, the end of its
# journal -> exit status.
Entry = Callable[..., int]


def main() -> int:
    # A collection would leave holes, and what a child puts there copies a shared page.
    gc.disable()
    descriptors.own_descriptors()
    daemon.title("rq-fork")
    root = Path(sys.argv[1])
    from rq.queues import process  # the reason for this process; late, after the checks

    settings.load_ahead()

    def entry(
        name: str, ready: int, life: int, sock: int = -1, end: End | None = None
    ) -> int:
        listens = Listens(fd=sock, end=end) if end else None
        return process.main(root, name, ready_fd=ready, life_fd=life, listens=listens)

    with socket.socket(fileno=os.dup(0)) as line:
        line.setblocking(False)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        gc.freeze()
        server = ForkServer(line, entry)
        server.say({"ready": True})
        server.run()
    return 0


class ForkServer:
    """Answers requests until their socket ends."""

    def __init__(self, line: socket.socket, entry: Entry) -> None:
        self._line = line
        self._entry = entry
        self._text = b""
        self._fds: list[int] = []
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._woken in ready:
                _drain(self._woken)
            self._report_ends()
            if self._line.fileno() in ready and not self._receive():
                return

    def _receive(self) -> bool:
        """Take requests; False at the end of the socket."""
        try:
            data, fds, _, _ = socket.recv_fds(self._line, _READ, 250)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._fds += fds
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            end = [End(**request["end"])] if "end" in request else []
            number = FDS_PER_REQUEST + len(end)
            fds, self._fds = self._fds[:number], self._fds[number:]
            self._fork(request["name"], fds, end)
        return bool(data)

    def _fork(self, name: str, fds: list[int], end: list[End]) -> None:
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:
            self.say({"name": name, "pid": None, "error": str(error)})
            pid = -1
        if pid == 0:
            self._become(name, fds, end)
        descriptors.close_all(fds)
        if pid > 0:
            self.say({"name": name, "pid": pid})

    def _become(self, name: str, fds: list[int], end: list[End]) -> None:
        """Run the queue in this, the forked process; does not return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it has a handler
            os.setsid()
            # The queue parks 3 and 4; what it is given must lie above.
            fds = [descriptors.move_above(fd) for fd in fds]
            _close_all_but({0, 1, 2, *fds})
            gc.enable()
            status = self._entry(name, *fds, *end)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 (main of the forked process)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _report_ends(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.say({"pid": pid, "exit": os.waitstatus_to_exitcode(status)})

    def say(self, answer: dict[str, object]) -> None:
        self._line.setblocking(True)
        try:
            self._line.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass  # the supervisor is gone: the next read ends the loop
        finally:
            self._line.setblocking(False)


def _close_all_but(kept: set[int]) -> None:
    for fd in descriptors.open_descriptors():
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


if __name__ == "__main__":
    sys.exit(main())
