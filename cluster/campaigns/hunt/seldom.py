"""Store the first trace that hits each seldom-hit probe as a scenario file.

Later hunts may start from these files.
"""

from pathlib import Path

from cluster.campaigns.hunt.hunt import Hunt
from cluster.dispatch.inside import files_inside, remove_inside, write_inside
from cluster.storage.artefact import schema_line
from scenarios import codec
from scenarios.codec import comment
from scenarios.events import Schedule
from scenarios.probes import PROBES

SELDOM_FOLDER = "seldom"
SELDOM_SHARE_MAX = 0.02


def seldom_hit(hunt: Hunt) -> list[str]:
    """Return the probes that some, but at most 2 %, of a hunt's traces hit."""
    tally = hunt.totals.tally
    return [probe for probe in PROBES if 0 < tally.probes[probe] <= SELDOM_SHARE_MAX * tally.traces]


def keep_seldom_hit(hunt: Hunt, campaign: Path) -> None:
    """Write the first trace that hit each rarely hit probe as a scenario that expects it.

    It expects to hit the probe.
    """
    folder, seldom, tally = campaign / SELDOM_FOLDER, seldom_hit(hunt), hunt.totals.tally
    for probe in seldom:
        number = hunt.totals.firsts[probe]
        settings = hunt.settings
        trace = hunt.jobs.trace(number).model_copy(update={"schedule": Schedule(), "expect": {probe: 1}})
        what = f"{PROBES[probe]}: in {tally.probes[probe]} of {tally.traces} traces"
        head = comment([what, f"first in trace {number} of hunt {settings.profile} {settings.seed}"])
        write_inside(campaign, f"{SELDOM_FOLDER}/{probe}.yaml", schema_line(folder) + head + codec.dumps(trace))
    for path in files_inside(campaign, f"{SELDOM_FOLDER}/*.yaml"):
        if path.stem not in seldom:
            remove_inside(campaign, f"{SELDOM_FOLDER}/{path.name}")
