"""What every page and resource works with: the root, its config, the way to the owners."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from rq import names
from rq.access import warnings
from rq.config import queues
from rq.config.settings import RootConfig
from rq.errors import Busy
from rq.layout import Root
from rq.rpc.lines.owners import Owners
from rq.web.script_archive import Archives
from rq.web.unfinished_uploads import UnfinishedUploads

if TYPE_CHECKING:
    from jinja2 import Environment
T = TypeVar("T")

SEARCHES = 2  # at once
LOOKS = 8  # that owners make at once
WAITING = 8  # that may wait for their turn
_FILES = 8


class Pools:
    """The threads of one web process."""

    def __init__(self) -> None:
        self._files = ThreadPoolExecutor(_FILES, "rq-file")
        self._searches = ThreadPoolExecutor(SEARCHES, "rq-search")
        self._searching = 0
        self._looking = 0

    def file(self, act: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Do something with a file."""
        return asyncio.get_running_loop().run_in_executor(self._files, act, *args)

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Let an owner look into its messages; Busy when it looks for many already."""
        if self._looking >= LOOKS:
            raise Busy(f"{LOOKS} lists are being looked for: try again in a moment")
        self._looking += 1
        try:
            yield
        finally:
            self._looking -= 1

    def search(self, act: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Search, when it is its turn; Busy when too many wait already."""
        if self._searching >= SEARCHES + WAITING:
            raise Busy(
                f"{SEARCHES} searches run and {WAITING} wait: try again in a moment"
            )
        self._searching += 1
        loop = asyncio.get_running_loop()
        done = self._searches.submit(act, *args)
        # Count until the thread ends: a client that hangs up does not end its search.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(self._searched))
        return asyncio.wrap_future(done)

    def _searched(self) -> None:
        self._searching -= 1


class Streams(Protocol):
    """What is sent to viewers as long as they look."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Site:
    """One web process and the root it serves."""

    root: Root
    config: RootConfig
    owners: Owners
    secret: bytes  # signs the session cookie; one for each installation
    uploads: UnfinishedUploads
    pools: Pools = field(default_factory=Pools)
    scripts: Archives = field(default_factory=Archives)
    streams: list[Streams] = field(default_factory=list)  # who sends them adds it
    templates: Environment | None = None  # the app gives them

    @property
    def prefix(self) -> str:
        """The relative root without its last slash: "" or "/rq"."""
        return self.config.relative_root.rstrip("/")

    def url(self, path: str) -> str:
        """Return the address, under the relative root, of a path like `/q/NAME`."""
        return self.prefix + path

    def warnings(self) -> list[str]:
        """Return what an operator should know of access to this RQ, a sentence each."""
        return warnings.of_root(self.root, self.config, time.time())

    def is_queue(self, name: str) -> bool:
        """Whether there is such a queue, by any name that others have written."""
        return names.is_queue_name(name) and self.root.queue(name).config.is_file()

    def queue_names(self) -> list[str]:
        """Return the names of all queues, in order."""
        return sorted(queues.names_of(self.root))

    def render(self, template: str, **values: object) -> str:
        """Return a page."""
        assert self.templates, "create_app gives them"
        return self.templates.get_template(template).render(**values)


def make(root: Root, config: RootConfig, secret: bytes) -> Site:
    uploads = UnfinishedUploads(root.uploads)
    return Site(root, config, Owners(root), secret, uploads)
