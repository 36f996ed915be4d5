"""The phases of an attempt, and what may change them.

Rule: every change of a phase is a row of PHASES; a missing row is an error.
"""

from __future__ import annotations

from enum import StrEnum

from rq.errors import WrongState


class Phase(StrEnum):
    """How far an attempt is."""

    CLAIMED = "claimed"  # its claim is written; nothing runs for it yet
    STARTING = "starting"  # its script was started, and has said nothing
    RUNNING = "running"  # its script works on it
    FINISHING = "finishing"  # its script is done with it; what it left is ended first
    ENDED = "ended"  # its message has gone on


class Step(StrEnum):
    """What changes a phase."""

    START = "start"  # a script was started for it
    HAND_OVER = "hand over"  # a script that runs for longer has it
    HEAR = "hear"  # its script said a line
    FINISH = "finish"  # its script has exited, or is ready for the next message
    END = "end"  # its message goes on


PHASES: dict[tuple[Phase, Step], Phase] = {
    (Phase.CLAIMED, Step.START): Phase.STARTING,
    (Phase.CLAIMED, Step.HAND_OVER): Phase.RUNNING,
    (Phase.CLAIMED, Step.END): Phase.ENDED,  # nothing could be started for it
    (Phase.STARTING, Step.HEAR): Phase.RUNNING,
    (Phase.STARTING, Step.FINISH): Phase.FINISHING,
    (Phase.RUNNING, Step.HEAR): Phase.RUNNING,
    (Phase.RUNNING, Step.FINISH): Phase.FINISHING,
    (Phase.FINISHING, Step.END): Phase.ENDED,
}


def next_phase(phase: Phase, step: Step) -> Phase:
    """Return the phase that `step` leads to; WrongState when the table has no row."""
    target = PHASES.get((phase, step))
    if target is None:
        raise WrongState(f"an attempt that is {phase} cannot {step}")
    return target
