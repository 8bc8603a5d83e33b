"""Registry of faults: every fault by its name."""

from collections.abc import Mapping

from workers.faults import (
    aligned,
    cascade,
    counts,
    depth,
    drafters,
    drawn_drafts,
    grammar,
    isolation,
    lifetime,
    logprobs,
    mapping,
    names,
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
    cascade,
    slots,
    lifetime,
    isolation,
    scheduling,
    names,
    prefixes,
    processing,
    verification,
    sampling,
    drawn_drafts,
    logprobs,
    grammar,
    waits,
    depth,
    drafters,
)
FAULTS: Mapping[str, Fault] = {fault.id: fault for family in FAMILIES for fault in family.FAULTS}
