from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

import stepcast


@dataclass
class Job:
    workload: str
    system: str


step: stepcast.Result = stepcast.predict(Job("rm1", "dgx-h100"), set={"devices": 8})
document: Dict[str, Any] = step.to_dict()
stepcast.plan({"workload": "rm1", "system": "dgx-h100"}, progress=lambda share, note: print(share, note))
stepcast.explain(Path("a.json"), "b.json")
stepcast.replay([Path("trace")], strict=True)
target: str = stepcast.convert("trace", Path("out.json"), to="perfetto")
version: str = stepcast.version
