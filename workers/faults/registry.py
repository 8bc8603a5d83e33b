"""Every fault by its name."""

from collections.abc import Mapping

from workers.faults import (
    aligned,
    cascade,
    counts,
    depth,
    drafters,
    grammar,
    lifetime,
    logprobs,
    mapping,
    names,
    placeholders,
    prefixes,
    processing,
    recurrent,
    slots,
    waits,
)
from workers.faults.fault import Fault

FAMILIES = (
    counts,
    mapping,
    placeholders,
    recurrent,
    aligned,
    cascade,
    slots,
    lifetime,
    names,
    prefixes,
    processing,
    logprobs,
    grammar,
    waits,
    depth,
    drafters,
)
FAULTS: Mapping[str, Fault] = {fault.id: fault for family in FAMILIES for fault in family.FAULTS}
