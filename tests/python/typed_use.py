from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

import stepcast


@dataclass
class Job:
    workload: str
    system: str


step: stepcast.Prediction = stepcast.predict(Job("rm1", "dgx-h100"), set={"devices": 8})
seconds: float = step.iteration_time_s
document: Dict[str, Any] = step.to_dict()
plans: stepcast.Plans = stepcast.plan("llama3-8b", gpus=16, progress=lambda share, note: print(share, note))
script: str = stepcast.predict(plans.best).to_megatron(Path("train.sh"))
stepcast.sweep(step, gpus=range(8, 33, 8), tp=[1, 2])
stepcast.explain(Path("a.json"), "b.json")
stepcast.replay([Path("trace")], strict=True)
stepcast.convert("trace", Path("out.json"), to="perfetto")
version: str = stepcast.version
