"""Every module can be imported alone: none needs another to have been imported before."""

import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT

pytestmark = pytest.mark.process

# A child for each module; what comes from elsewhere is imported once, by their parent.
ALONE = """
import importlib, os, pathlib, sys, traceback

def alone(name):
    if (pid := os.fork()) == 0:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            os._exit(error.name.split(".")[0] == "rq")  # else Spark is not installed
        except BaseException:
            print(name, traceback.format_exc(limit=-3), sep="\\n", flush=True)
            os._exit(1)
        os._exit(0)
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
bad = [name for name in names if not alone(name)]
print(len(names), "modules,", len(bad), "that cannot be imported alone")
sys.exit(bool(bad))
"""


@pytest.mark.slow
def test_every_module_can_be_imported_alone():
    done = subprocess.run(
        [sys.executable, "-s", "-c", ALONE],
        check=False,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 300
