"""The host part of a decode step makes no list: it writes in place and passes tuples on.

A list that is alive between two instructions of the project is found in the garbage collector, and attributed to the
line that ran last. Arrays are counted in `test_array_data`.
"""

import gc
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.functions import EngineFunctions
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, specstorm_target

WARM_UP, STEPS = 20, 5
# Not the host's part: the simulated device, watchers of its memory, and copies for the checks. Drafters on the
# host, which search lists of tokens, are not run here.
NOT_COUNTED = (
    "kernels/",
    "lanes/",
    "judge/races.py",
    "record/observation.py",
    "engine/captures.py",
    "engine/host_observations.py",
)

SPECS = {
    "depth 2": EngineSpec(),
    "depth 1": EngineSpec(depth=1),
    "counts on the host": EngineSpec(accepted_counts="host"),
    "attention": EngineSpec(layers="attention", pad=False, policy="priority"),
    "cascade": EngineSpec(depth=1, cascade=True),
    "states kept with blocks": EngineSpec(recurrent_cache="align", prefix_cache=True),
    "no drafts": EngineSpec(num_speculative_tokens=0),
    "draft model": EngineSpec(drafter="draft_model"),
    "mtp": EngineSpec(drafter="mtp"),
    "dflash": EngineSpec(drafter="dflash"),
    "hidden states": EngineSpec(drafter="extract_hidden_states", num_speculative_tokens=1),
    "ngram on the device": EngineSpec(drafter="ngram_gpu"),
    "medusa": EngineSpec(drafter="medusa", depth=1),
}
NOTHING = SamplingParams()
PARAMS = {
    "penalties": SamplingParams(frequency_penalty=0.5, min_tokens=50, bad_words=((1,),)),
    "logprobs": SamplingParams(num_logprobs=2),
    "a temperature": SamplingParams(temperature=0.5, top_k=3),
    "grammar": SamplingParams(grammar=(((0, 1), (1, 0)), ((1, 0), (0, 1)))),
}


class Lists:
    """Counts the lists created while a step runs, by the last executed line of `workers`."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._place = ""

    def step(self, run: Run) -> None:
        """Step an engine and count."""
        before = sys.gettrace()
        gc.disable()
        gc.freeze()
        sys.settrace(self._look)
        try:
            run.feed.step()
        finally:
            sys.settrace(before)
            gc.unfreeze()
            gc.enable()

    def _look(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if "/workers/" not in path:
            return None
        frame.f_trace_opcodes = not path.rpartition("/workers/")[2].startswith(NOT_COUNTED)
        self.seen[self._place] += sum(type(made) is list for made in gc.get_objects(generation=0))
        # A list that was counted before is skipped.
        gc.freeze()
        self._place = f"{path.rpartition('/workers/')[2]}:{frame.f_lineno}"
        return self._look


def lists(
    spec: EngineSpec, params: SamplingParams = NOTHING, functions: EngineFunctions | None = None
) -> dict[str, int]:
    """Return the lists made by each line in five decode steps of four requests after warm-up."""
    events = tuple(
        Submit(tick=0, request=f"r{index}", prompt=(1, 2, 3), max_tokens=120, accept="10", params=params)
        for index in range(4)
    )
    run = Run(Trace(spec=spec, events=events).explicit(), ModelValueCache(), Options(), Specstorm(functions))
    for _ in range(WARM_UP):
        run.feed.step()
    counted = Lists()
    for _ in range(STEPS):
        counted.step(run)
    assert len(specstorm_target(run.target).engine.scheduler.running) == 4
    assert run.probes.get("preemption", 0) == 0
    return {line: count for line, count in counted.seen.items() if count}


def of_the_host(found: dict[str, int]) -> dict[str, int]:
    """Return the counts of the host's part."""
    return {line: count for line, count in found.items() if not line.startswith(NOT_COUNTED)}


@pytest.mark.parametrize("name", SPECS)
def test_decode_step_makes_no_list_on_the_host(name: str) -> None:
    found = lists(SPECS[name])
    assert sum(found.values()) > 50
    assert of_the_host(found) == {}


@pytest.mark.parametrize("name", PARAMS)
def test_decode_step_with_features_makes_no_list_on_the_host(name: str) -> None:
    # At depth 2 a request with a grammar waits for its tokens, and joins the batch again each time.
    depth = 1 if PARAMS[name].grammar else 2
    assert of_the_host(lists(EngineSpec(depth=depth), PARAMS[name])) == {}


def test_short_lived_list_made_by_the_host_is_detected() -> None:
    def backup_through_a_list(num_tokens_no_spec: int, optimistic_seq_len: int) -> int:
        return [num_tokens_no_spec - 1].pop()

    here = EngineFunctions(backup_index=backup_through_a_list)
    found = of_the_host(lists(EngineSpec(), functions=here))
    assert list(found.values()) == [4 * STEPS]
