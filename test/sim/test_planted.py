"""The simulation finds bugs that are planted in the replication of jobs."""

import inspect
import itertools
import sys

import pytest
from harness.simulation.ledger import Broken
from harness.simulation.runs import Run, run
from harness.simulation.steps import plan

from rq.broker.desks import collection, copies, job_desk, node, placement, returning
from rq.broker.dialects import disque_jobs
from rq.broker.state import jobs

MOST = 1500  # seeds until a bug must have shown
FIRST = 4928, 17881, 30588  # some that show bugs that most do not
BUGS = {
    "the producer is answered one copy early": (
        copies,
        "if len(spread.confirmed) < spread.wanted:",
        "if len(spread.confirmed) < spread.wanted - 1:",
    ),
    "an acknowledgement is not passed on": (
        collection,
        "self._outlet.send(node, SetAck(spread.job_id, nodes))",
        "pass",
    ),
    "acknowledgements are not noted": (
        jobs,
        "            job.state = State.ACKED\n",
        "            job.state = State.ACTIVE\n            return\n",
    ),
    "nobody is told that a job is queued": (
        placement,
        "self._copies.tell_others(spread, IsQueued(message.job, 0, 0))",
        "pass",
    ),
    "an announcement is not sent": (
        placement,
        "self._copies.tell_others(spread, WillQueue(spread.job_id))",
        "pass",
    ),
    "a job waits on for copies after its producer is gone": (
        copies,
        "            self.fail(job, None, now)\n            return\n",
        "            return\n",
    ),
    "a delivery at most once is not synced": (
        job_desk,
        "now, sync=not job.retry)",
        "now, sync=False)",
    ),
    "copies are sent once only": (
        copies,
        "self._jobs.spreads.wake(spread, now + LOOK, now)",
        "pass",
    ),
    "an acknowledgement is sent once only": (
        collection,
        "self._jobs.spreads.wake(spread, now + wait, now)",
        "pass",
    ),
    "a job that comes at most once is queued again": (
        job_desk,
        "if job.state is not State.ACTIVE or not job.due:",
        "if job.state is not State.ACTIVE:",
    ),
    "an old copy of a disk hands out what comes at most once": (
        job_desk,
        "self._outlet.emit(Put(job.job_id, 0.0), now)",
        "pass",
    ),
    "a start does not wait for what others know of the disk": (
        node,
        "self.jobs.hold(job, now + HOLD, now)",
        "pass",
    ),
    "a node that comes back holds nothing": (
        returning,
        "return self._waited.keys().isdisjoint(spread.may_have)",
        "return True",
    ),
    "a node that comes back is told nothing at once": (
        returning,
        "self._left[node] = iter([*spreads.by_job, *spreads.tombs])",
        "self._left[node] = iter(())",
    ),
    "a producer that waits is refused when a link drops": (
        copies,
        "left = spread.confirmed.union(self._outlet.peers.counted)",
        "left = spread.confirmed.union(self._outlet.peers.reachable)",
    ),
    "a producer is refused while a link is broken": (
        disque_jobs,
        "there = peers.counted if waits else peers.reachable",
        "there = peers.reachable",
    ),
}


def plant(monkeypatch, module, text, bug):
    """Let a module do what another text of it says."""
    source = inspect.getsource(module)
    assert text in source
    names = dict(vars(module))
    exec(compile(source.replace(text, bug), module.__file__, "exec"), names)
    for name, value in list(names.items()):
        ours = getattr(module, name, None)
        if getattr(ours, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(ours):
            monkeypatch.setattr(ours, "__code__", value.__code__)
        if not inspect.isclass(ours):
            continue
        for attribute, function in vars(value).items():
            if inspect.isfunction(function):
                monkeypatch.setattr(ours, attribute, function)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name, monkeypatch, capsys):
    plant(monkeypatch, *BUGS[name])
    for seed in itertools.chain(FIRST, range(MOST)):
        size, faulty, steps = plan(seed)
        try:
            Run(seed, size, faulty=faulty, steps=steps).play()
        except Broken as broken:
            with capsys.disabled():
                sys.stderr.write(f" seed {seed}: {str(broken)[:60]}\n")
            return
    pytest.fail(f"{MOST} seeds do not show it")


def test_a_run_that_breaks_a_promise_is_shown_with_the_steps_it_needs(monkeypatch):
    plant(monkeypatch, *BUGS["an acknowledgement is not passed on"])
    seed = next(each for each in range(MOST) if _breaks(each))
    with pytest.raises(Broken) as shown:
        run(seed)
    title, *steps = str(shown.value).splitlines()
    assert title.startswith(f"seed {seed}, ")
    assert 0 < len(steps) < len(plan(seed)[2])


def _breaks(seed):
    size, faulty, steps = plan(seed)
    try:
        Run(seed, size, faulty=faulty, steps=steps).play()
    except Broken:
        return True
    return False
