"""Forecast a training step before you run it, from Python.

    import stepcast
    step = stepcast.predict("llama3-8b", set={"system": "dgx-h100", "devices": 8})
    step.iteration_time_s, step.memory_bytes.total, step.summary()
    stepcast.sweep("llama3-8b", set={"system": "dgx-h100", "devices": [8, 16, 32]}).to_pandas()

Functions are the commands of these names (docs/reference/commands.md). A job is a name, a file, a dict, a dataclass or an
answer. Other Python threads go on meanwhile, and an interrupt ends a call.
"""

from __future__ import annotations

from ._answers import Planned, Plans, Prediction, Record, Result, Sweep, Text
from ._commands import *  # noqa: F403
from ._commands import __all__ as _commands
from ._errors import EnvironmentLack, Error, InputError, InternalError, RunError
from ._library import version
from ._more import calibrate, devices, frameworks, keys, run, systems, workloads

__all__ = [*_commands, "run", "calibrate", "workloads", "systems", "devices", "frameworks", "keys", "version", "Result",
           "Prediction", "Plans", "Planned", "Sweep", "Record", "Text", "Error", "InputError", "EnvironmentLack",
           "RunError", "InternalError"]
__version__: str = version.split()[1]  # of "stepcast 0.1.0 (1a2b3c4d)"
