"""Leaves a checkout to its owner: root's caches would keep its own tests from running."""

import os
from pathlib import Path


def give_back(checkout: Path) -> None:
    """Give the owner of a checkout what root has left in it."""
    owner = checkout.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for directory, names, files in os.walk(checkout):
        for path in (os.path.join(directory, name) for name in (*names, *files)):
            if os.lstat(path).st_uid == 0:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
