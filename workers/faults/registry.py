"""Every fault by its name."""

from collections.abc import Mapping

from workers.faults import counts
from workers.faults.fault import Fault

FAULTS: Mapping[str, Fault] = {fault.id: fault for fault in counts.FAULTS}
