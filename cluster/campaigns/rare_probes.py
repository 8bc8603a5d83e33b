"""Keep the traces of a hunt that first hit what few of its traces hit: the corpus that a later hunt begins from."""

from pathlib import Path

from cluster.campaigns.hunter import Hunter
from cluster.storage.artefact import write_atomically
from scenarios import codec
from scenarios.codec import comment
from scenarios.events import Schedule
from scenarios.probes import PROBES

FOLDER = "rare"
SHARE_MAX = 0.02


def rare_probes(hunter: Hunter) -> list[str]:
    """Return the probes that at most one trace of fifty has hit, and at least one."""
    return [probe for probe in PROBES if 0 < hunter.tally.probes[probe] <= SHARE_MAX * hunter.tally.traces]


def keep_rare(hunter: Hunter, campaign: Path) -> None:
    """Write the first trace that hit each rare probe, derived again from its key, and expecting to hit it."""
    folder, rare = campaign / FOLDER, rare_probes(hunter)
    for probe in rare:
        number, count = hunter.firsts[probe], hunter.tally.probes[probe]
        plan = hunter.plan
        trace = hunter.trace(number).model_copy(update={"schedule": Schedule(), "expect": {probe: 1}})
        what = f"{PROBES[probe]}: in {count} of {hunter.tally.traces} traces"
        head = comment([what, f"first in trace {number} of hunt {plan.profile} {plan.seed}"])
        write_atomically(folder / f"{probe}.yaml", head + codec.dumps(trace))
    for path in folder.glob("*.yaml"):
        if path.stem not in rare:
            path.unlink()
