"""A script that ends before its limits hold: its end is heard."""

import asyncio
import os
import signal

from rq.message.limits import Limits
from rq.proc import rlimits
from rq.proc.family import Family
from rq.scripts.script import Plan, Script


def test_one_that_is_killed_before_its_limits_hold_ends_as_any_other(
    tmp_path, monkeypatch
):
    def killed(pid, limits):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(rlimits, "apply", killed)

    async def ended():
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        null = os.open(os.devnull, os.O_RDWR)
        plan = Plan(
            argv=["/bin/true"],
            env={"PATH": os.defpath},
            directory=str(tmp_path),
            output=null,
            lease=null,
            nice=0,
            family=Family(),
            limits=Limits(open_files=64),
        )
        script = Script(plan, loop, lambda line: None, lambda: over.set_result(None))
        async with asyncio.timeout(30):
            await over
        script.hang_up()
        os.close(null)
        return script.termination

    assert asyncio.run(ended()).signal == "SIGKILL"
