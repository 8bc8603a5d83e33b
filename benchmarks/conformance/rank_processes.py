"""Compare several ranks of vLLM, as processes of its own executor, with one rank: on GPUs with NCCL, or on a CPU.

    python -m benchmarks.conformance.rank_processes [--device cuda|cpu] [--only NAME ...] [--workers N] [...]

Each scenario runs free, with late further ranks, with random delays, and with a rank that is late for its sampling.
Two findings run without their fix and with it. A table has one line for each run; exit code 1 if a scenario differs
from one rank, a fixed finding still fails, or a job did not run. A scenario that needs more GPUs than this machine has
is only named.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from scenarios.capabilities import lacking
from scenarios.codec import load
from scenarios.events import Delay, Schedule
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Lost, Verdict
from workers.record.words import headline_text
from workers.run.check import judge_trace
from workers.run.engine_run import Options
from workers.run.references import References
from workers.targets.registry import target_kind
from workers.targets.target import Device, DeviceError, RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1

ROOT = Path(__file__).resolve().parents[2]
# Scenarios of ranks, and scenarios of one rank that run with two tensor ranks.
OF_RANKS = ("ranks_of_tensors", "ranks_of_a_pipeline", "ranks_of_both_kinds")
OF_ONE_RANK = (
    *("batch", "accepted_drafts", "rejected_drafts", "chunks_beside_drafts", "lookup_on_the_device"),
    *("preempted_while_in_flight", "shared_prefixes", "drawn_tokens", "drawn_drafts", "grammars", "penalties"),
    *("logprobs_of_prompts", "aborted_while_in_flight", "pool_too_small"),
)
FINDINGS = ("vllm_eagle_layers_of_ranks", "vllm_ranks_reuse_sampling_states")
# Where the sampler of vLLM 0.32.0 reads temperatures and seeds.
_SAMPLING = "v1/worker/gpu/sample/gumbel.py:382"
_LATE = Delay(at=(_SAMPLING,), microseconds=60_000, rank=1)
WAYS: Mapping[str, Schedule] = {
    "free": Schedule(),
    "late ranks": Schedule(policy="lazy"),
    "random delays": Schedule(policy="random", seed=1),
    "late sampling of rank 1": Schedule(delays=(_LATE,)),
}
_HEAD = f"{'trace':34} {'ranks':6} {'schedule':24} {'steps':>5} {'seconds':>7}  result"


class Job(NamedTuple):
    """A trace file, the number of its tensor ranks if not its own, and the fixes to apply."""

    file: Path
    tensor_ranks: int | None = None
    fixes: str = ""

    @property
    def name(self) -> str:
        """Return the name of the scenario or finding."""
        return self.file.parent.name if self.file.name == "trace.yaml" else self.file.stem

    @property
    def is_finding(self) -> bool:
        """Return whether the trace is that of a known finding, which is expected to fail without its fix."""
        return self.file.name == "trace.yaml"

    def trace(self) -> Trace:
        """Return the explicit trace, without expected probes: they may depend on the number of ranks."""
        trace = load(self.file)
        more = {} if self.tensor_ranks is None else {"tensor_ranks": self.tensor_ranks}
        return trace.model_copy(update={"spec": trace.spec.model_copy(update=more), "expect": {}}).explicit()


class Line(NamedTuple):
    """One line of the table; `is_wrong` if the run is missing, or differs from one rank without its known finding."""

    text: str
    is_wrong: bool


def jobs(only: Sequence[str] = ()) -> list[Job]:
    """Return all jobs, or those with these names."""
    folder = ROOT / "scenarios" / "vllm"
    found = [Job(folder / f"{name}.yaml") for name in OF_RANKS]
    found += [Job(ROOT / "findings" / name / "trace.yaml", fixes=fixes) for name in FINDINGS for fixes in ("", name)]
    found += [Job(folder / f"{name}.yaml", tensor_ranks=2) for name in OF_ONE_RANK]
    return [job for job in found if not only or job.name in only]


def result_of(verdict: Verdict) -> str:
    """Return what a run shows, in one line."""
    if isinstance(verdict, Agreed):
        return "tokens equal"
    return f"{verdict.kind.upper()}: {headline_text(verdict)}".replace("\n", " ")


def config_on(device: Device, engine_home: str = "") -> RunConfig:
    """Return the configuration of a device: the second runner on GPUs, the first one on a CPU."""
    return RunConfig(engine=VLLM if device == "cuda" else VLLM_V1, device=device, engine_home=engine_home)


def run_job(job: Job, device: RunConfig) -> Iterator[Line]:
    """Run a trace under each schedule; yield a line for each."""
    config = device.model_copy(update={"fixes": job.fixes})
    trace, kind = job.trace(), target_kind(config.engine)
    name = f"{job.name}{' (fixed)' if job.fixes else ''}"
    spec = trace.spec
    ranks = f"{spec.tensor_ranks} x {spec.pipeline_ranks}"
    capabilities, cache, compared = kind.capabilities_under(config), ModelValueCache(), References()
    for way, schedule in WAYS.items():
        if schedule.delays and not capabilities.delays:
            continue
        scheduled = trace.model_copy(update={"schedule": schedule})
        begun = time.monotonic()
        refused = lacking(scheduled, capabilities)
        if refused is not None:
            yield Line(f"{name:34} {ranks:6} not run: {refused}", False)
            return
        try:
            kind.prepare(config)
            verdict = judge_trace(scheduled, cache, Options(compared=compared, confirm="never"), kind, config)
        except DeviceError as error:
            yield Line(f"{name:34} {ranks:6} not run: {error}", True)
            return
        seconds, steps = time.monotonic() - begun, 0 if isinstance(verdict, Lost) else verdict.stats.steps
        is_expected = isinstance(verdict, Agreed) or (job.is_finding and not job.fixes)
        text = f"{name:34} {ranks:6} {way:24} {steps:5} {seconds:7.1f}  {result_of(verdict)}"
        yield Line(text, not is_expected)
        if isinstance(verdict, Crashed) and not steps:
            # The engine does not start under any schedule.
            return


def main(arguments: list[str]) -> int:
    """Run the jobs, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--engine-home", default="", metavar="DIR", help="the installation of vLLM, if not the default")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these scenarios and findings only")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="jobs at a time, which share the GPUs")
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="no job begins later")
    options = parser.parse_args(arguments)
    print(_HEAD, flush=True)
    until, is_wrong = time.monotonic() + 60 * options.minutes, False
    waiting = jobs(options.only)
    # Worker processes end their engines when they exit.
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        config = config_on(options.device, options.engine_home)
        for future in [pool.submit(_run_until, job, config, until) for job in waiting]:
            for line in future.result():
                is_wrong |= line.is_wrong
                print(line.text, flush=True)
    return int(is_wrong)


def _run_until(job: Job, config: RunConfig, until: float) -> list[Line]:
    if time.monotonic() > until:
        return [Line(f"{job.name:34} not run: the time is over", True)]
    return list(run_job(job, config))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
