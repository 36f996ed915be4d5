"""The only fsync, rename, link and unlink of RQ; imported by `journal`, `spool`,
`broker` and `config` alone.

Paths may be relative to a directory descriptor, so that an owner keeps working in its
own queue whatever is renamed around it. `crash_point` is called at named points; tests
make it kill the process there.
"""

from rq.files.durable.crash_points import arm, crash_point
from rq.files.durable.files import (
    ATTACHMENT_MODE,
    DIR_MODE,
    FILE_MODE,
    allow,
    claim,
    clear_way,
    give,
    link,
    make_dir,
    make_dirs,
    move,
    overwrite,
    remove_dir,
    remove_tree,
    replace,
    unlink,
    write_all,
    write_new,
)
from rq.files.durable.segment import cut, sync_data, write_at, zero_filled
from rq.files.durable.synced import (
    rename_durable,
    replace_durable,
    replace_with,
    symlink_durable,
    sync_files,
    sync_filesystem,
    sync_open,
    sync_path,
    touch_durable,
    unlink_durable,
    write_durable,
)

__all__ = [
    "ATTACHMENT_MODE",
    "DIR_MODE",
    "FILE_MODE",
    "allow",
    "arm",
    "claim",
    "clear_way",
    "crash_point",
    "cut",
    "give",
    "link",
    "make_dir",
    "make_dirs",
    "move",
    "overwrite",
    "remove_dir",
    "remove_tree",
    "rename_durable",
    "replace",
    "replace_durable",
    "replace_with",
    "symlink_durable",
    "sync_data",
    "sync_files",
    "sync_filesystem",
    "sync_open",
    "sync_path",
    "touch_durable",
    "unlink",
    "unlink_durable",
    "write_all",
    "write_at",
    "write_durable",
    "write_new",
    "zero_filled",
]
