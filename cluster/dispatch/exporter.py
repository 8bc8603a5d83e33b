"""Exporter of a pool's metrics for Prometheus, by Ray's metrics endpoint.

Ray prefixes each name with `ray_`. The dashboards in `ray_configs/monitoring/` use these names.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from cluster.dispatch.job import Answer, AnyJob, Job, ShardJob
from workers.record.verdict import Judgement, Lost
from workers.run.shard import ShardReport
from workers.run.trials import Trial
from workers.shrink.fingerprint import Signature, signature_of

GAUGE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: name, kind, description, and the keys of its labels.

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


class Exporter:
    """Metrics of one pool for monitoring; results are in the store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram  # noqa: PLC0415  not without a Ray

        kinds = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        self._metrics: dict[str, Any] = {}
        for metric in METRICS:
            options: dict[str, Any] = {"description": metric.description, "tag_keys": metric.labels}
            if metric.kind == "histogram":
                options["boundaries"] = list(metric.boundaries)
            self._metrics[metric.name] = kinds[metric.kind](metric.name, **options)
        self._bugs: set[str] = set()
        self._workers, self._set_at = -1, 0.0
        self._clock = clock

    def answered(self, job: AnyJob, answer: Answer, seconds: float) -> None:
        """Count an answered job, its seconds, its steps and its new findings."""
        assert seconds >= 0, f"an answer {seconds} s after its question"
        self._metrics[JOBS.name].inc(tags={"kind": job.kind})
        self._metrics[JOB_SECONDS.name].observe(seconds, tags={"kind": job.kind})
        steps = _steps(answer)
        if steps:
            self._metrics[STEPS.name].inc(steps)
        for signature in _findings(job, answer):
            if signature.bug not in self._bugs:
                self._bugs.add(signature.bug)
                self._metrics[FINDINGS.name].inc(tags={"plane": signature.plane})

    def lost(self) -> None:
        """Count an attempt that was lost with its worker."""
        assert LOST_JOBS.name in self._metrics, "it is exported"
        self._metrics[LOST_JOBS.name].inc()

    def workers(self, count: int) -> None:
        """Export the number of workers that are ready or run a job."""
        assert count >= 0, f"{count} workers"
        # Ray drops a gauge that is not set for a while, so it is set repeatedly.
        if count != self._workers or self._clock() > self._set_at + GAUGE_SECONDS:
            self._workers, self._set_at = count, self._clock()
            self._metrics[WORKERS.name].set(count)


def _steps(answer: Answer) -> int:
    match answer:
        case Judgement(verdict=verdict):
            return 0 if isinstance(verdict, Lost) else verdict.stats.steps
        case ShardReport() | Trial():
            return answer.steps
    return 0


def _findings(job: AnyJob, answer: Answer) -> list[Signature]:
    """Return the signatures of the findings in an answer; none if faults were on."""
    match job, answer:
        case Job(), Judgement() if not job.trace.faults:
            signature = signature_of(answer.verdict, answer.trace)
            return [] if signature is None else [signature]
        case ShardJob(role="hunt"), ShardReport() if not job.shard.faults:
            return [hit.signature for hit in answer.hits]
    return []
