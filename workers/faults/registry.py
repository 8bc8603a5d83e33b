"""Registry of all planted faults, by name."""

from collections.abc import Mapping

from workers.faults import (
    aligned,
    counts,
    drafters,
    grammar,
    isolation,
    lifetime,
    limits,
    logprobs,
    mapping,
    placeholders,
    prefixes,
    processing,
    recurrent,
    sampling,
    scheduling,
    slots,
    verification,
    waits,
)
from workers.faults.fault import Fault

FAMILIES = (
    counts,
    mapping,
    placeholders,
    recurrent,
    aligned,
    limits,
    slots,
    lifetime,
    isolation,
    scheduling,
    prefixes,
    processing,
    verification,
    sampling,
    logprobs,
    grammar,
    waits,
    drafters,
)
FAULTS: Mapping[str, Fault] = {
    fault.id: fault for family in FAMILIES for fault in vars(family).values() if isinstance(fault, Fault)
}
