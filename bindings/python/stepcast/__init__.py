"""Forecast a training step before you run it, from Python.

    import stepcast
    step = stepcast.predict(set={"workload": "llama3-8b", "system": "dgx-h100", "devices": 8})
    step["iteration_time_s"], step.memory_bytes["total"]
    stepcast.sweep(set={"workload": "llama3-8b", "system": "dgx-h100", "devices": [8, 16, 32]}).to_pandas()

Every function is the command of that name (docs/reference/commands.md): a job is a dict, a dataclass or a file, an option
`--time-limit 5` is `time_limit=5`. Other Python threads go on meanwhile, an interrupt ends a call, and
`progress=lambda share, note: ...` is told how far a long one is.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Dict, Iterable, Mapping, Optional, Protocol, Union

from ._engine import EnvironmentLack, Error, InputError, InternalError, Progress, RunError, run
from ._result import Result
from ._stepcast import version

__all__ = ["predict", "plan", "sweep", "explain", "replay", "show", "convert", "version",
           "Result", "Error", "InputError", "EnvironmentLack", "RunError", "InternalError"]
__version__: str = version.split()[1]  # of "stepcast 0.1.0 (1a2b3c4d)"


class Dataclass(Protocol):
    __dataclass_fields__: ClassVar[Dict[str, Any]]


Job = Union[Mapping[str, Any], Dataclass, str, "os.PathLike[str]", None]
Settings = Optional[Mapping[str, Any]]


def predict(job: Job = None, *, set: Settings = None, **options: Any) -> Result:
    """The time of one training step, where it goes, memory, throughput."""
    return run("predict", [job], set=set, **options)


def sweep(job: Job = None, *, set: Settings = None, progress: Optional[Progress] = None, **options: Any) -> Result:
    """One prediction per point of the cross product of the settings that are lists."""
    return run("sweep", [job], set=set, progress=progress, **options)


def plan(job: Job = None, *, set: Settings = None, progress: Optional[Progress] = None, **options: Any) -> Result:
    """Ranked plans: of embedding tables, or of the ways to split a transformer."""
    return run("plan", [job], set=set, progress=progress, **options)


def explain(a: Job = None, b: Job = None, *, set: Settings = None, with_: Settings = None, **options: Any) -> Result:
    """Where the difference between two jobs, plans or traces comes from; `with_` makes B of A."""
    return run("explain", [a, b], set=set, with_=with_, **options)


def replay(traces: Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]], **options: Any) -> Result:
    """Recorded runs simulated again: errors with controls, what-if (`scale=["gemm=0.5"]`), a guard (`baseline=FILE`)."""
    many = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    return run("replay", many, **options)


def show(what: Job = None, *, set: Settings = None, **options: Any) -> Result:
    """What a job, trace, system, device or plan consists of."""
    return run("show", [what], set=set, **options)


def convert(source: Union[str, "os.PathLike[str]"], target: Union[str, "os.PathLike[str]"], **options: Any) -> str:
    """Writes a trace in another format (`to="perfetto"`), or a job of what other tools write; returns the target."""
    run("convert", [source, target], document=False, **options)
    return os.fspath(target)
