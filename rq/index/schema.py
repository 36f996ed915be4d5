"""The tables of the index, and how its file is opened.

Why they are as they are

- A message's `id` is the moment of its acceptance, in units of 128 µs, made unique. So the
  order of rowids is that of acceptance, and the newest matches of a search come first
  without a sort, also after the queues have been read one after the other.
- `words` and `said` hold no text of their own (`content=''`): what is taken out of them has
  to be said again, letter by letter. What is written once with a message is in `words`,
  what changes with each of its ends in `said`, so an end costs a few words and not all.
- The place up to which a queue was read is a row like the others, written in the same
  transaction: there is no gap and no double after a kill.
- Partial indexes hold the few messages that lists ask for: those in err, those that run."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, TypeAlias

from rq.errors import Damaged, NotPermitted, Unreachable
from rq.layout import Root

Cell: TypeAlias = int | float | str | bytes | None  # as SQLite takes values
SqlRow: TypeAlias = Any  # as it gives them: each statement knows what its columns hold

VERSION = 4
TICK = 7  # bits of a moment in µs that an id of a message leaves out
WAL_PAGES = 8_000  # of 4 KiB, after which they are moved into the file
CACHE_KIB = 16_384  # of pages, in the process that writes

TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE queues (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    journal TEXT,      -- up to this event …
    seq INTEGER NOT NULL DEFAULT 0,
    checksum TEXT,     -- … whose line has this checksum all is read
    file TEXT,         -- in which it stands: hints, no more
    inode INTEGER,
    at INTEGER         -- where that line begins
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    msg TEXT NOT NULL,
    state TEXT NOT NULL,
    seq INTEGER NOT NULL,       -- of the line that accepted it
    accepted INTEGER NOT NULL,  -- µs
    changed INTEGER NOT NULL,   -- when it came into its state
    started INTEGER,            -- its last attempt
    attempt INTEGER NOT NULL,
    count INTEGER NOT NULL,
    cause TEXT, text TEXT, grp TEXT,
    params TEXT, key TEXT, src TEXT, timer TEXT,
    by TEXT  -- who has sent it
);
CREATE UNIQUE INDEX by_msg ON messages (queue, msg);
CREATE INDEX failing ON messages (grp, changed, queue) WHERE state = 'err';
CREATE INDEX running ON messages (queue) WHERE state = 'run';
CREATE INDEX ended ON messages (changed)
    WHERE state IN ('done', 'relayed', 'dismissed', 'gone');
-- Its rowids are in the order of acceptance: the newest of a sender cost what they show.
CREATE INDEX sent_by ON messages (by) WHERE by IS NOT NULL;
CREATE INDEX lost ON messages (queue, seq) WHERE state = 'gone' AND params IS NOT NULL;
CREATE TABLE prepared (
    queue INTEGER NOT NULL, msg TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (queue, msg)
) WITHOUT ROWID;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    queue INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    waited INTEGER, ran INTEGER,
    outcome TEXT NOT NULL,
    cause TEXT, text TEXT, timer TEXT
);
-- With all that sums and conditions ask of a run: its row is not read for them.
CREATE INDEX run_ended ON runs (ended, queue, outcome, started, ran);
CREATE INDEX run_failed ON runs (ended) WHERE outcome = 'err';
CREATE INDEX run_of_queue ON runs (queue, ended);
CREATE INDEX run_of_message ON runs (message);
CREATE TABLE sums (  -- of `runs`: see `sums.py`
    queue INTEGER NOT NULL,
    hour INTEGER NOT NULL,  -- in which they ended
    runs INTEGER NOT NULL, failed INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL,  -- none started before or after …
    longest INTEGER NOT NULL,  -- … or ran longer
    PRIMARY KEY (queue, hour)
) WITHOUT ROWID;
CREATE TABLE groups (
    name TEXT PRIMARY KEY, cause TEXT NOT NULL, wording TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE hours (
    queue INTEGER NOT NULL, hour INTEGER NOT NULL, counts TEXT NOT NULL,
    PRIMARY KEY (queue, hour)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(
    text, tokenize='trigram', content='', columnsize=0);
CREATE VIRTUAL TABLE said USING fts5(
    text, tokenize='trigram', content='', columnsize=0);
"""


def place(root: Root) -> Path:
    return root.index / "messages.sqlite"


def beat(root: Root) -> Path:
    """A file that is touched whenever all is read that can be."""
    return root.index / "beat"


def writer(root: Root) -> sqlite3.Connection:
    """Open the file for the process that writes it; make it if there is none. Damaged: it
    has to be made again."""
    path = place(root)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    base = sqlite3.connect(path, isolation_level=None, cached_statements=64)
    try:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        # Each checkpoint syncs twice, and owners of queues wait for the same disk.
        base.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        base.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * 4096}")
        _check(base, path)
    except sqlite3.DatabaseError as error:
        base.close()
        raise Damaged(f"{path}: {error}") from None
    except Damaged:
        base.close()
        raise
    return base


def _check(base: sqlite3.Connection, path: Path) -> None:
    version = version_of(base)
    if version == 0 and not base.execute("SELECT 1 FROM sqlite_master").fetchone():
        base.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
    elif version != VERSION:
        raise Damaged(f"{path} is of version {version}, this RQ writes {VERSION}")


def reader(root: Root) -> sqlite3.Connection:
    """Open the file for questions. Unreachable: it is not there, or cannot be used yet.
    NotPermitted: it is another user's."""
    path = place(root)
    _find(path)
    try:
        base = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=2.0)
        base.execute("PRAGMA query_only = ON")
        version = version_of(base)
    except sqlite3.Error as error:
        raise Unreachable(f"the index cannot be read now: {error}") from None
    if version != VERSION:
        base.close()
        raise Unreachable(
            f"the index is of version {version}, this RQ reads {VERSION}: it is made "
            "again as soon as its process starts"
        )
    return base


def _find(path: Path) -> None:
    try:
        is_there = path.exists()
    except PermissionError:
        raise NotPermitted(
            "the index is for the user of RQ alone: ask as that user, or ask the web"
        ) from None
    if not is_there:
        raise Unreachable(
            "the index is not there yet: `rq up` starts the process that makes it"
        )


def version_of(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def remove(root: Root) -> None:
    """Remove the file, and what SQLite keeps beside it."""
    path = place(root)
    for name in (f"{path.name}-wal", f"{path.name}-shm", path.name):
        path.with_name(name).unlink(missing_ok=True)
