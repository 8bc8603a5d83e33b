"""Try the fixes of known bugs: a finding must occur on the release and not with its fix.

`python -m benchmarks.conformance.fixes [NAME ...]` replays the trace of each finding on the engine that its file names,
three times: on the release, with its own fix, and with all fixes. If a trace also triggers other bugs, `run_on` of its
file names their fixes, which are applied each time. `--sample N --seed S` tries a random sample. Exit code 1 if a
finding does not occur on the release, or occurs with its fix; 2 for a name that has no fix.
"""

import argparse
import random
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from cluster.cli.inputs import check_fixes
from scenarios.codec import load, run_on
from scenarios.trace import Trace
from workers.edits.fix import ALL, FILE, FINDINGS, RACES, TRACE
from workers.edits.proofs import AGREES, Proof, keep
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Diverged, Stuck, Vacuous, Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig


def names_of(asked: Sequence[str], sample: int | None, seed: int) -> list[str]:
    """Return the findings to try; all that have a fix and a trace if none is named.

    Raises:
        KeyError: a finding that is named has no fix, or no trace.
    """
    fixes = {file.parent.name for file in FINDINGS.glob(f"*/{FILE}")}
    for name in asked:
        if name not in fixes or not trace_file(name).exists():
            raise KeyError(name)
    return sampled(asked or {name for name in fixes if trace_file(name).exists()}, sample, seed)


def sampled(names: Collection[str], sample: int | None, seed: int) -> list[str]:
    """Return the names in order, or `sample` names selected by a seed."""
    found = sorted(names)
    return sorted(random.Random(seed).sample(found, min(sample, len(found)))) if sample is not None else found


def trace_file(name: str) -> Path:
    """Return the path of a finding's smallest trace."""
    return FINDINGS / name / TRACE


def tried(name: str, engine_path: str = "") -> Proof:
    """Return the verdicts of a finding's trace without its own fix, with it, and with all fixes."""
    trace, config = load(trace_file(name)).explicit(), RunConfig.of(run_on(trace_file(name)))
    kind = target_kind(config.engine)
    # The sources are laid over the default release.
    laid_over = {"engine_path": engine_path, "release": ""} if engine_path else {}
    config = config.model_copy(update={"engine_digest": "", **laid_over})
    config = config.model_copy(update={"engine_version": kind.version(config)})
    others = check_fixes(config.fixes or RACES, kind.package)
    own = ",".join(filter(None, (others, name)))
    released, fixed, all_fixed = (_verdict_with(trace, config, fixes) for fixes in (others, own, ALL))
    signature = signature_of(released, trace)
    return Proof(
        name=name,
        engine=config.engine,
        version=config.engine_version,
        bug=signature.bug if signature is not None else "",
        released=_text(released),
        fixed=_text(fixed),
        all_fixed=_text(all_fixed),
    )


def _verdict_with(trace: Trace, config: RunConfig, fixes: str) -> Verdict:
    """Return the verdict on a trace with some fixes, and stop the engine's process."""
    kind, config = target_kind(config.engine), config.model_copy(update={"fixes": fixes})
    try:
        return check(trace, ModelValueCache(), Options(confirm="never"), config=config)
    finally:
        kind.restart(config)


def _text(verdict: Verdict) -> str:
    match verdict:
        case Agreed():
            return AGREES
        case Diverged(difference=found):
            return f"diverged in {found.plane}: {found.variable}"
        case Crashed(error=error):
            return f"crashed: {error[:60]}"
        case Stuck():
            return "stuck"
        case Vacuous():
            return "vacuous"
        case _:
            return type(verdict).__name__.lower()


def line(proof: Proof) -> str:
    """Return the verdicts of a finding's trace with and without its fix as a line of text."""
    mark = "proved" if proof.proves else "not shown" if not proof.bug else "NOT PROVED"
    shown = f"release: {proof.released}; own fix: {proof.fixed}; all fixes: {proof.all_fixed}"
    return f"{mark:<10} {proof.name} ({proof.engine} {proof.version}): {shown}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the fixes of the named findings; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="findings to try; default: all that have a fix")
    parser.add_argument("--sample", type=int, metavar="N", help="try N findings, selected at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of --sample (default: 0)")
    parser.add_argument("--engine-path", default="", metavar="DIR", help="source tree that overlays the engine")
    parser.add_argument("--keep", action="store_true", help="write the results to findings/proofs.json")
    options = parser.parse_args(arguments)
    try:
        names = names_of(options.names, options.sample, options.seed)
    except KeyError as error:
        print(
            f"fixes: {error} has no fix, or no trace; allowed are folders of {FINDINGS} with {FILE} and {TRACE}",
            file=sys.stderr,
        )
        return 2
    proofs = []
    for name in names:
        proofs.append(tried(name, options.engine_path))
        print(line(proofs[-1]), flush=True)
    if options.keep:
        keep(proofs)
    num_proved = sum(proof.proves for proof in proofs)
    print(f"{num_proved} of {len(proofs)} fixes proved")
    return 0 if num_proved == len(proofs) else 1


if __name__ == "__main__":
    sys.exit(main())
