"""Metrics that a campaign exports on Ray's metrics endpoint: names, kinds, labels, units.

Ray puts `ray_` before each name. Dashboards are made of these names (`ray_configs/monitoring/`).
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by its name; `labels` are the keys by which its values are told apart.

    The `boundaries` of a histogram are the upper bounds of its buckets.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: tuple[str, ...] = ()
    boundaries: tuple[float, ...] = ()


JOBS = Metric("specstorm_jobs_total", "counter", "Jobs that have a result, by what was asked for.", ("kind",))
STEPS = Metric("specstorm_steps_total", "counter", "Engine steps that were checked.")
FINDINGS = Metric("specstorm_findings_total", "counter", "Different findings, by the plane they show in.", ("plane",))
JOB_SECONDS = Metric(
    "specstorm_job_seconds",
    "histogram",
    "Seconds from the start of a job's attempt to its answer.",
    ("kind",),
    (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
)
WORKERS = Metric("specstorm_workers", "gauge", "Workers that are ready or run a job.")
LOST_JOBS = Metric("specstorm_lost_jobs_total", "counter", "Attempts that were lost with their worker.")

METRICS = (JOBS, STEPS, FINDINGS, JOB_SECONDS, WORKERS, LOST_JOBS)
