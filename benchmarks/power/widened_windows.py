"""Remove waits from vLLM on a GPU; compare delays that widen races with repetition.

Each removal leaves out a wait, or the event it waits for, in one of the model runners. Its races are found on the
simulated device; on the GPU the trace runs unchanged, joined, and with the window of each race widened.

    python -m benchmarks.power.widened_windows [--only ID ...] [--times N] [--results FILE]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.power.reversals.trial import ROOT, installed
from scenarios.codec import load
from workers.edits.edit import Edit
from workers.edits.tree import overlay
from workers.run.widening import DelayedRuns, delay_source_lines
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1

_RUNNER, _LOOKUP = "vllm.v1.worker.gpu_model_runner", "vllm.v1.spec_decode.ngram_proposer_gpu"
_BATCH = "vllm.v1.worker.gpu_input_batch"
# Modules of the second runner.
_DRAFTS, _GRAMMARS = "vllm.v1.worker.gpu.spec_decode.utils", "vllm.v1.worker.gpu.structured_outputs"


class Removal(NamedTuple):
    """A statement that orders work, its function, and a scenario that needs the order."""

    id: str
    edit: Edit
    scenario: str
    engine: str = VLLM_V1


REMOVALS = (
    Removal(
        "counts-never-waited-for",
        Edit(
            at=f"{_RUNNER}:GPUModelRunner._get_valid_sampled_token_count", without="sampled_count_event.synchronize()"
        ),
        "rejected_drafts",
    ),
    Removal(
        "counts-never-recorded",
        Edit(
            at=f"{_RUNNER}:GPUModelRunner._copy_valid_sampled_token_count",
            without="self.valid_sampled_token_count_event.record()",
        ),
        "rejected_drafts",
    ),
    Removal(
        "counts-copied-beside",
        Edit(
            at=f"{_RUNNER}:GPUModelRunner._copy_valid_sampled_token_count",
            without="self.valid_sampled_token_count_copy_stream.wait_stream(default_stream)",
        ),
        "rejected_drafts",
    ),
    Removal(
        "drafts-never-waited-for",
        Edit(
            at=f"{_RUNNER}:GPUModelRunner._get_draft_token_ids_cpu", without="self.draft_token_ids_event.synchronize()"
        ),
        "grammars",
    ),
    Removal(
        "drafts-never-recorded",
        Edit(
            at=f"{_RUNNER}:GPUModelRunner._copy_draft_token_ids_to_cpu", without="self.draft_token_ids_event.record()"
        ),
        "grammars",
    ),
    Removal(
        "drafts-copied-beside",
        Edit(
            at=f"{_RUNNER}:GPUModelRunner._copy_draft_token_ids_to_cpu",
            without="self.draft_token_ids_copy_stream.wait_stream(default_stream)",
        ),
        "grammars",
    ),
    Removal(
        "found-drafts-never-waited-for",
        Edit(at=f"{_LOOKUP}:update_scheduler_for_invalid_drafts", without="num_valid_draft_tokens_event.synchronize()"),
        "padded_drafts",
    ),
    Removal(
        "found-drafts-never-recorded",
        Edit(at=f"{_LOOKUP}:copy_num_valid_draft_tokens", without="num_valid_draft_tokens_event.record()"),
        "padded_drafts",
    ),
    Removal(
        "found-drafts-copied-beside",
        Edit(
            at=f"{_LOOKUP}:copy_num_valid_draft_tokens",
            without="num_valid_draft_tokens_copy_stream.wait_stream(default_stream)",
        ),
        "padded_drafts",
    ),
    Removal(
        "outputs-never-waited-for",
        Edit(
            at=f"{_BATCH}:InputBatch.update_async_output_token_ids", without="self.async_copy_ready_event.synchronize()"
        ),
        "biased_logits",
    ),
    Removal(
        "inputs-never-waited-for",
        Edit(at=f"{_RUNNER}:GPUModelRunner.synchronize_input_prep", without="self.prepare_inputs_event.synchronize()"),
        "chunks_beside_drafts",
    ),
    Removal(
        "inputs-never-recorded",
        Edit(at=f"{_RUNNER}:GPUModelRunner.synchronize_input_prep", without="self.prepare_inputs_event.record()"),
        "batch",
    ),
    Removal(
        "v2-drafts-never-waited-for",
        Edit(at=f"{_DRAFTS}:DraftTokensHandler.get_draft_tokens", without="self.copy_event.synchronize()"),
        "grammars",
        VLLM,
    ),
    Removal(
        "v2-drafts-never-recorded",
        Edit(at=f"{_DRAFTS}:DraftTokensHandler.set_draft_tokens", without="self.copy_event.record()"),
        "grammars",
        VLLM,
    ),
    Removal(
        "v2-drafts-copied-beside",
        Edit(
            at=f"{_DRAFTS}:DraftTokensHandler.set_draft_tokens", without="self.copy_stream.wait_stream(current_stream)"
        ),
        "grammars",
        VLLM,
    ),
    Removal(
        "v2-masks-never-waited-for",
        Edit(
            at=f"{_GRAMMARS}:StructuredOutputsWorker.apply_grammar_bitmask",
            without="current_stream.wait_stream(self.copy_stream)",
        ),
        "grammars",
        VLLM,
    ),
    Removal(
        "v2-masks-copied-beside",
        Edit(
            at=f"{_GRAMMARS}:StructuredOutputsWorker.apply_grammar_bitmask",
            without="self.copy_stream.wait_stream(current_stream)",
        ),
        "grammars_in_turn",
        VLLM,
    ),
)


def races_widened(removal: Removal, times: int) -> list[DelayedRuns]:
    """Return the GPU results for the races that a removal causes, without known races.

    Raises:
        DeviceError: one of the installations or the GPU is missing.
    """
    trace = load(ROOT / "scenarios" / "vllm" / f"{removal.scenario}.yaml").explicit()
    with tempfile.TemporaryDirectory(prefix="removals-") as folder:
        path = str(overlay([removal.edit], installed(removal.engine), Path(folder)))
        simulated = RunConfig(engine=removal.engine, engine_path=path)
        gpu = simulated.model_copy(update={"device": "cuda"})
        return list(delay_source_lines(trace, simulated, gpu, times))


def line_of(removal: str, races: Sequence[DelayedRuns]) -> str:
    """Return a line with the numbers of races, harmful locations and harmed runs."""
    ways: dict[str, list[int]] = {}
    for race in races:
        for tries in race.tries:
            if tries.way in ("plain", "joined") and tries.way in ways:
                continue
            counted = ways.setdefault(tries.way, [0, 0])
            counted[0] += tries.harmed
            counted[1] += tries.runs
    runs = ", ".join(f"{way} {harmed} of {count}" for way, (harmed, count) in ways.items())
    num_races, num_harmful = sum(each.num_races for each in races), sum(each.does_harm for each in races)
    return (
        f"{removal}: {num_races} races at {len(races)} locations, {num_harmful} locations do harm; harmed runs: {runs}"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the removals; return 1 if one does no harm although its race window is widened."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.power.widened_windows", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[each.id for each in REMOVALS], metavar="ID", help="only these")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--results", type=Path, help="file to which one line of JSON per race is appended")
    options = parser.parse_args(arguments)
    num_without_harm = 0
    for removal in REMOVALS:
        if options.only is not None and removal.id not in options.only:
            continue
        races = races_widened(removal, options.times)
        print(line_of(removal.id, races), flush=True)
        num_without_harm += not any(each.does_harm for each in races)
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.writelines(f"{each.model_dump_json()}\n" for each in races)
    return 1 if num_without_harm else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
