"""Extension of vLLM's worker class: delays inside the process of one rank, by calls of vLLM's executor."""

from typing import Any

import numpy as np
import torch

from scenarios.events import Schedule
from workers.targets.child.inside.gpu import Gpu

# The name by which vLLM imports the extension (`worker_extension_cls`).
EXTENSION = f"{__name__}.DelayedWorker"


class DelayedWorker:
    """Methods that vLLM adds to its worker; their names begin with a prefix, since vLLM's worker has many others."""

    rank: int

    def specstorm_begin(self, schedule: str) -> None:
        """Begin a trace: end earlier delays, reset the random generators, and start the delays of a schedule."""
        torch.manual_seed(0)
        np.random.seed(0)
        worker: Any = self
        if not hasattr(self, "specstorm_delays"):
            worker.specstorm_delays = Gpu(self.rank)
        started = Schedule.model_validate_json(schedule)
        worker.specstorm_delays.begin({}, started, races=False, digests=False, writers=False)

    def specstorm_step(self, tick: int) -> None:
        """Set the number of the step that is executed next."""
        worker: Any = self
        worker.specstorm_delays.step(tick)

    def specstorm_end(self) -> dict[str, int]:
        """Wait for the device, end all delays, and return how often this rank was delayed."""
        worker: Any = self
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        counts: dict[str, int] = worker.specstorm_delays.report()["counts"]
        worker.specstorm_delays.idle()
        return counts
