"""A way to a store that can be shut: as a store that goes away, and comes back."""

from __future__ import annotations

import contextlib
import socket
import threading


class Gate:
    """A way to a store that can be shut."""

    def __init__(self, host):
        self._to = host.rsplit(":", 1)
        self._lines = []
        self.is_open, self.is_still = True, False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                if self.is_still:
                    self._lines.append(line)
                    continue
                if not self.is_open:
                    line.close()
                    continue
                to = socket.create_connection(self._to)
                self._lines += [line, to]
                for pair in ((line, to), (to, line)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.is_still:
                    return
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)

    def shut(self):
        self.is_open = False
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def be_still(self):
        """From now on take all that comes, and answer nothing."""
        self.is_still = True

    def open(self):
        """Let what comes be answered again."""
        if self.is_still:
            self.shut()
        self.is_open, self.is_still = True, False

    def close(self):
        self.shut()
        self._listening.close()
        for line in self._lines:
            line.close()
