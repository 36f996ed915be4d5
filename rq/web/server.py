"""The web's program: gunicorn around the application, listeners, a quick clean stop.

gunicorn's master holds the listeners and starts the worker again when it dies; what a
request needs lives in the worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from rq import config, logs
from rq.access import tls, tokens
from rq.config.settings import RootConfig
from rq.errors import BadConfig, CannotRead, RQError
from rq.proc import daemon, listening, turnlimit
from rq.proc.listening import Bound
from rq.rpc import helper
from rq.rpc.helper import Helper
from rq.web import app, guard, session, site
from rq.web.connection import Asgi, Receive, Scope, Send
from rq.web.door import Rules, Worker
from rq.web.site import Site

KEEP_ALIVE = 75  # seconds that an idle connection stays open
BODY_TIME = 60  # seconds without a byte until a request counts as broken off
GRACE = 4  # seconds from TERM to the end, whatever is still open
_POLL = 0.05
DO_NOT_RESTART = 3  # only a person can mend it

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    try:
        started = helper.start("web", argv)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-web: {error}\n")
        return 1
    try:
        settings = config.read_root(started.root)
        guard.check_config(settings, tokens.exist(started.root))
        rules = Rules(
            connections=settings.web_connections,
            certificate=tls.of(settings.tls, started.root.path),
        )
        bound = listening.listen(settings.addr, settings.port, "the web")
    except CannotRead as error:  # the next start may read it
        started.refuse(str(error))
        return 1
    except BadConfig as error:
        started.refuse(str(error))
        return DO_NOT_RESTART
    except (RQError, OSError) as error:
        started.refuse(str(error))
        return 1
    # systemd waits for the supervisor's word, not for gunicorn's.
    os.environ.pop("NOTIFY_SOCKET", None)
    turnlimit.watch()
    _Server(started, settings, rules, bound).run()
    return 0


class _Log(Logger):
    """gunicorn's own words go where all of this process's go."""

    def setup(self, cfg: object) -> None:
        self.error_log.propagate = True
        self.error_log.handlers[:] = []
        self.error_log.setLevel(logging.WARNING)

    def reopen_files(self) -> None:
        """Nothing: the log is rotated by the process that writes it."""

    def close_on_exec(self) -> None:
        """Nothing: Python's files are."""


class _Server(BaseApplication):
    """gunicorn, configured by this program alone."""

    def __init__(
        self,
        started: Helper,
        settings: RootConfig,
        rules: Rules,
        bound: Bound,
    ) -> None:
        self._started = started
        self._settings = settings
        self.rules = rules
        self._fds = [sock.detach() for sock in bound.socks]
        self._held = bound.held
        self._counted: _Counted | None = None
        super().__init__()

    def load_config(self) -> None:
        chosen: dict[str, Any] = {
            "bind": [f"fd://{fd}" for fd in self._fds],
            "worker_class": Worker,
            "workers": self._settings.web_workers,
            "keepalive": KEEP_ALIVE,
            "timeout": BODY_TIME,  # also of a worker that does nothing at all
            "graceful_timeout": GRACE,
            "control_socket_disable": True,
            "logger_class": _Log,
            "umask": 0o027,
            "chdir": "/",
            "proc_name": "rq-web",
            # Trust no X-Forwarded header: they stay in
            # the request, where the gate sees that they came.
            "forwarded_allow_ips": "",
            "http_protocols": "h1",
            "http2_cleartext": "off",
            "post_fork": self._forked,
            "post_worker_init": self._ready,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Asgi:
        root, settings = self._started.root, self._settings
        served = site.make(root, settings, session.secret_of(root))
        for text in served.warnings():
            log.warning("%s", text)
        self._counted = _Counted(app.create_app(served), served)
        return self._counted

    # ---- in the worker

    def _forked(self, arbiter: Arbiter, worker: Worker) -> None:
        """Die with the master: another one could not take the place of both."""
        daemon.die_with_parent(signal.SIGKILL)
        daemon.title("rq-web")
        if os.getppid() != arbiter.pid:
            sys.exit(1)

    def _ready(self, worker: Worker) -> None:
        """Stop as this program wants it, and tell the supervisor that we serve."""
        counted = self._counted
        assert counted, "load has been called"
        loop: asyncio.AbstractEventLoop = worker.loop

        def stop() -> None:
            worker.handle_exit_signal()
            counted.stopping = loop.create_task(_drain(counted))

        loop.add_signal_handler(signal.SIGTERM, stop)
        if self._started.life_fd is not None:
            loop.add_reader(self._started.life_fd, _end_master, loop, self._started)
        try:
            self._started.say_ready(self._held)
        except BrokenPipeError:
            log.info("serving again %s", logs.fields(pid=os.getpid()))


def _end_master(loop: asyncio.AbstractEventLoop, started: Helper) -> None:
    """The supervisor is gone."""
    assert started.life_fd is not None
    loop.remove_reader(started.life_fd)
    os.kill(os.getppid(), signal.SIGTERM)


class _Counted:
    """The application, and how many requests it is answering."""

    def __init__(self, inner: app.App, served: Site) -> None:
        self._inner = inner
        self.site = served
        self.active = 0
        self.stopping: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        self.active += 1
        try:
            await self._inner(scope, receive, send)
        finally:
            self.active -= 1


async def _drain(counted: _Counted) -> None:
    """End streams and long polls at once, wait for answers, then end without waiting for the idle.

    SIGQUIT is gunicorn's word for that; connections that only stay open would be
    waited for otherwise.
    """
    for streams in counted.site.streams:
        streams.close()
    counted.site.owners.end_waits()
    while counted.active:
        await asyncio.sleep(_POLL)
    os.kill(os.getpid(), signal.SIGQUIT)
