"""The program that a queue starts, here or on another host: the same for all its
messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rq.message.limits import NONE, Limits
from rq.proc.family import Family
from rq.scripts import environment
from rq.scripts.log import StdioLog
from rq.scripts.run_as import AS_RQ, RunAs
from rq.scripts.script import Plan, Script, find_program
from rq.scripts.slots import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A script, and what it is always started with."""

    path: str
    argv_prefix: list[str]  # words before it, such as those of an interpreter
    env: Mapping[str, str]  # as `environment.fixed` gives it
    nice: int
    family: Family
    run_as: RunAs = AS_RQ

    def plan(
        self,
        slot: Slot,
        values: Mapping[str, str],
        *,
        directory: int | str,
        output: int,
        limits: Limits = NONE,
    ) -> Plan:
        """Return how it is started in a slot, with `values` in its environment; OSError
        when its interpreter is not there."""
        env = {
            **environment.for_script(self.env, self.path, slot.lease),
            **self.run_as.env,
            **values,
        }
        return Plan(
            argv=find_program([*self.argv_prefix, self.path], env.get("PATH", "")),
            env=env,
            directory=directory,
            output=output,
            lease=slot.fd,
            nice=self.nice,
            family=self.family,
            limits=limits,
            run_as=self.run_as,
        )

    def start(
        self,
        slot: Slot,
        values: Mapping[str, str],
        log: StdioLog,
        make: Callable[[Plan], Script],
        limits: Limits = NONE,
    ) -> Script:
        """Start it for a message whose log has begun, with `make`; the slot is its own
        then. OSError says why it cannot start."""
        try:
            plan = self.plan(
                slot,
                values,
                directory=log.directory,
                output=log.fd,
                limits=limits,
            )
            script = make(plan)
            log.started(script.pid)
        except BaseException:
            log.close()
            raise
        log.close(slot.fd)
        return script
