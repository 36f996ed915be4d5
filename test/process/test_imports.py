"""Every module can be imported alone: none needs another to have been imported before.

Only modules that import each other, in a ring, can need that: a package and what it names
in its `__init__` are one. Of all others one import in any order proves it.
"""

import subprocess
import sys

import grimp
import pytest
from harness.checkout import CHECKOUT

pytestmark = pytest.mark.process

# A child for each module of a ring, and one for all others; what comes from elsewhere is
# imported once, by their parent.
ALONE = """
import importlib, os, pathlib, sys, traceback

def goes(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return error.name.split(".")[0] != "rq"  # Spark is not installed
    except BaseException:
        print(name, traceback.format_exc(limit=-3), sep="\\n", flush=True)
        return False
    return True

def in_child(names):
    if (pid := os.fork()) == 0:
        os._exit(0 if all([goes(name) for name in names]) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def of_others(names):
    out, into = os.pipe()
    if os.fork() == 0:
        for name in names:
            try:
                importlib.import_module(name)
            except BaseException:
                pass  # told when it is imported alone
        foreign = [name for name in sys.modules if name.split(".")[0] != "rq"]
        os.write(into, " ".join(foreign).encode())
        os._exit(0)
    os.close(into)
    with open(out) as pipe:
        return pipe.read().split()

paths = sorted(pathlib.Path("rq").rglob("*.py"))
names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
names = [name for name in names if not name.endswith("__main__")]
for name in of_others(names):
    try:
        importlib.import_module(name)
    except BaseException:
        pass
assert not [name for name in sys.modules if name.split(".")[0] == "rq"]
rings = set(sys.argv[1:])
parts = [[name] for name in names if name in rings]
parts.append([name for name in names if name not in rings])
bad = [part for part in parts if not in_child(part)]
print(len(names), "modules,", len(rings), "of them in rings,", len(bad), "trouble")
sys.exit(bool(bad))
"""


def in_rings() -> list[str]:
    """Return the modules that import themselves again, by way of others."""
    graph = grimp.build_graph("rq", exclude_type_checking_imports=True, cache_dir=None)
    left = {name: _first(graph, name) for name in graph.modules}
    while gone := _outside(left):
        left = {name: first - gone for name, first in left.items() if name not in gone}
    return sorted(left)


def _first(graph: grimp.ImportGraph, name: str) -> set[str]:
    """Return what is imported before a module has been; its packages are."""
    parts = name.split(".")
    packages = {".".join(parts[:end]) for end in range(1, len(parts))}
    return packages | graph.find_modules_directly_imported_by(name)


def _outside(left: dict[str, set[str]]) -> set[str]:
    """Return modules that import nothing of what is left, or that nothing there imports."""
    imported = set().union(*left.values()) if left else set()
    return {name for name, first in left.items() if not first or name not in imported}


@pytest.mark.slow
def test_every_module_can_be_imported_alone():
    done = subprocess.run(
        [sys.executable, "-s", "-c", ALONE, *in_rings()],
        check=False,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 300
