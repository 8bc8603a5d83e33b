"""Flip bits of a running engine: of device memory in stream order, or of host observations."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scenarios.trace import Trace
from workers.engine.captures import Captures
from workers.engine.functions import EngineFunctions
from workers.engine.memory import FIELDS, NUM_COMPUTED_RING, SAMPLING_FIELDS, View, capture_size
from workers.judge.checker import Checker
from workers.kernels.logprobs.definition import LOGPROBS_MAX
from workers.kernels.process_logits.definition import line_of
from workers.kernels.state_copy.definition import num_block_columns
from workers.lanes.lane import Lane, Machine, Span
from workers.oracle.expected_captures import (
    SCRATCH,
    Expectation,
    expected_drafted,
    expected_inputs,
    expected_kept,
    expected_poisoned,
    expected_release,
    expected_sampled,
    expected_sampling,
    expected_state,
)
from workers.oracle.model_values import ModelValueCache
from workers.oracle.truth import Release, StepTruth
from workers.record.evidence import Difference
from workers.record.log import Entry, Freed, Launched
from workers.record.observation import Observation, Recorder
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, specstorm_target

Look = Callable[[str, int, View | None, list[int]], None]


class Snapshot(NamedTuple):
    """The oracle's state when a step is launched, and the buffer indexes still to be read."""

    truth: StepTruth
    live: dict[str, set[int]]


class Snapshots(Checker):
    """Checker that stores its expected values: `steps` by number, `releases` in order."""

    def __init__(self, trace: Trace, value_cache: ModelValueCache) -> None:
        super().__init__(trace, value_cache)
        self.steps: dict[int, Snapshot] = {}
        self.releases: list[Release] = []
        self.observations: list[Observation] = []

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        for entry in log:
            found = super().see_log([entry])
            if found is not None:
                return found
            if self.is_over:
                # An ambiguous token was sampled: the run is not judged after it.
                return None
            if isinstance(entry, Observation):
                self.observations.append(entry)
            if isinstance(entry, Launched) and entry.order:
                truth = self.oracle.steps[entry.step]
                self.steps[entry.step] = Snapshot(truth, self._live(truth))
            if isinstance(entry, Freed):
                self.releases.append(self.oracle.releases[-1])
        return None

    def _live(self, step: StepTruth) -> dict[str, set[int]]:
        """Return the buffer indexes that may still be read after a step's state was captured.

        Buffers that are not named are written anew before they are read. The sentinels of `sampled` are read by the
        host: a column past the last valid one must stay NO_TOKEN until the output is copied.
        """
        spec = self.spec
        k, width = spec.num_speculative_tokens, spec.conv_width
        sampled_rows = [index for index, row in enumerate(step.rows) if not row.discard]
        rows_max = capture_size(spec.max_num_seqs) if spec.pad else spec.max_num_seqs
        counts = step.step % NUM_COMPUTED_RING * rows_max
        live = {
            "num_computed": {counts + row for row in sampled_rows},
            "valid": set(sampled_rows),
            "next_tokens": set(sampled_rows),
            "accepted": set(sampled_rows) if spec.accepted_counts == "host" else set(),
            "sampled": {row * (1 + k) + column for row in sampled_rows for column in range(1 + k)},
            "draft_tokens": {
                index for index, value in enumerate(expected_state(step, spec)["proposed"]) if value is not SCRATCH
            },
        }
        for name in ("flat_logprob_ids", "flat_logprobs"):
            wanted = sum(row.valid for row in step.rows if row.truth.num_logprobs)
            live[name] = set(range(wanted * LOGPROBS_MAX))
        caches = ("kv", "drafter_kv", "lines", "script", "states", "conv", "carried", "drafter_states", "drafter_conv")
        live |= {name: set() for name in (*caches, "draft_logits", "slot_accepted", "block_states", "block_windows")}
        size = spec.block_size
        for block in self.oracle.cache.contents if self.oracle.cache is not None else ():
            for name in ("kv", "drafter_kv"):
                live[name].update(range(block * size, (block + 1) * size))
            if spec.is_aligned:
                live["block_states"].add(block)
                live["block_windows"].update(range(block * (width - 1), (block + 1) * (width - 1)))
        for truth in self.oracle.requests:
            if not truth.blocks:
                continue
            cached = truth.slots[: truth.computed]
            live["kv"].update(cached)
            live["drafter_kv"].update(cached)
            if spec.is_aligned:
                held = truth.blocks[: -(-truth.computed // spec.block_size)]
                live["block_states"].update(held)
                live["block_windows"].update(block * (width - 1) + at for block in held for at in range(width - 1))
            line, slot = truth.state_slot * spec.max_model_len, truth.state_slot
            live["script"].update(range(line + truth.computed + 1, line + spec.max_model_len))
            if truth.model_values.logits:
                at, length = line_of(spec.vocab_size), line_of(spec.vocab_size).tokens + spec.max_model_len
                first = slot * length
                live["lines"].update(range(first, first + at.tokens + max(truth.computed, truth.committed)))
            if spec.layers == "hybrid" and truth.computed:
                if spec.accepted_counts == "device":
                    live["slot_accepted"].add(slot)
                live["states"].add(slot * (2 + k) + truth.accepted)
                start = slot * (width + k) + truth.accepted
                live["conv"].update(range(start, start + width - 1))
                live["drafter_states"].add(slot * (2 + k) + truth.accepted)
                live["drafter_conv"].update(range(start, start + width - 1))
            live["carried"].add(slot)
            first = slot * k * spec.vocab_size
            live["draft_logits"].update(range(first, first + len(truth.drawn) * spec.vocab_size))
        return live


class HookedCaptures(Captures):
    """Captures that call a hook before and after each capture, in stream order."""

    def __init__(self, run: Run, recorder: Recorder, before: Look, after: Look) -> None:
        memory = specstorm_target(run.target).engine.runner.memory
        super().__init__(run.trace.spec, memory, specstorm_target(run.target).machine.lane("compute"), recorder)
        self._lane: Lane = specstorm_target(run.target).machine.lane("compute")
        self._before, self._after = before, after
        self._num_releases = 0

    def inputs(self, view: View, step: int, requests: tuple[int, ...]) -> None:
        self._lane.capture(lambda: self._before("inputs", step, view, []))
        super().inputs(view, step, requests)
        self._lane.capture(lambda: self._after("inputs", step, view, []))

    def poisoned(self, blocks: Sequence[int], step: int, requests: tuple[int, ...]) -> None:
        chosen = sorted(blocks)
        self._lane.capture(lambda: self._before("poisoned", step, None, chosen))
        super().poisoned(blocks, step, requests)
        self._lane.capture(lambda: self._after("poisoned", step, None, chosen))

    def sampling(self, view: View, step: int, requests: tuple[int, ...], fields: Sequence[Span]) -> None:
        self._lane.capture(lambda: self._before("sampling", step, None, []))
        super().sampling(view, step, requests, fields)
        self._lane.capture(lambda: self._after("sampling", step, None, []))

    def sampled(self, view: View, step: int, requests: tuple[int, ...], has_processed: bool) -> None:
        self._lane.capture(lambda: self._before("sampled", step, view, []))
        super().sampled(view, step, requests, has_processed)
        self._lane.capture(lambda: self._after("sampled", step, view, []))

    def state(self, view: View, step: int, requests: tuple[int, ...]) -> None:
        self._lane.capture(lambda: self._before("state", step, view, []))
        super().state(view, step, requests)
        self._lane.capture(lambda: self._after("state", step, view, []))

    def drafted(self, view: View, step: int, requests: tuple[int, ...]) -> None:
        self._lane.capture(lambda: self._before("drafted", step, view, []))
        super().drafted(view, step, requests)
        self._lane.capture(lambda: self._after("drafted", step, view, []))

    def block_states(self, view: View, step: int, requests: tuple[int, ...]) -> None:
        self._lane.capture(lambda: self._before("kept", step, view, []))
        super().block_states(view, step, requests)
        self._lane.capture(lambda: self._after("kept", step, view, []))

    def caches(self, step: int, request: int, blocks: list[int], point: str) -> None:
        release, owned = self._num_releases, list(blocks)
        self._num_releases += 1
        self._lane.capture(lambda: self._before("freed", release, None, owned))
        super().caches(step, request, blocks, point)
        self._lane.capture(lambda: self._after("freed", release, None, owned))


def nothing(point: str, step: int, view: View | None, blocks: list[int]) -> None:
    """Do nothing (the default hook)."""


def hooked(
    trace: Trace,
    value_cache: ModelValueCache,
    before: Look = nothing,
    after: Look = nothing,
    recorder: Recorder | None = None,
) -> Run:
    """Return a run that calls hooks before and after each capture."""
    run = Run(trace, value_cache, Options(), Specstorm(EngineFunctions()))
    if recorder is not None:
        specstorm_target(run.target).recorder = recorder
    specstorm_target(run.target).engine.runner.context.captures = HookedCaptures(
        run, specstorm_target(run.target).recorder, before, after
    )
    return run


def layout_of(snapshots: Snapshots, point: str, step: int) -> Expectation:
    """Return the expected values of one capture; captures of freed blocks count from 0."""
    spec = snapshots.spec
    match point:
        case "poisoned":
            return expected_poisoned(snapshots.steps[step].truth, spec)
        case "inputs":
            return expected_inputs(snapshots.steps[step].truth, spec)
        case "sampling":
            return expected_sampling(snapshots.steps[step].truth, spec)
        case "sampled":
            return expected_sampled(snapshots.steps[step].truth, spec)
        case "drafted":
            return expected_drafted(snapshots.steps[step].truth, spec)
        case "kept":
            return expected_kept(snapshots.steps[step].truth, spec) if spec.is_aligned else {}
        case "state":
            return expected_state(snapshots.steps[step].truth, spec)
        case _:
            return expected_release(snapshots.releases[step], spec)


def cell_of(variable: str, index: int, run: Run, view: View | None, blocks: Sequence[int]) -> tuple[str, int]:
    """Return the buffer and index from which element `index` of a captured variable was read."""
    spec, data = run.trace.spec, memory_of(specstorm_target(run.target).machine)
    k, width, rows_max = (
        spec.num_speculative_tokens,
        spec.conv_width,
        specstorm_target(run.target).engine.runner.memory.rows_max,
    )
    state_slot = FIELDS.index("state_slot") * rows_max
    match variable:
        case "accepted_read" if spec.accepted_counts == "host":
            return "inputs", FIELDS.index("accepted_host") * rows_max + index
        case "top_k" | "seeds":
            field = SAMPLING_FIELDS.index(variable)
            return "inputs", specstorm_target(
                run.target
            ).engine.runner.memory.layout.sampling + field * rows_max + index
        case "draft_logits_read":
            row, column = divmod(index, k)
            slot = int(data["inputs"][state_slot + row])
            return "draft_logits", (slot * k + column) * spec.vocab_size
        case "num_computed":
            assert view is not None
            return variable, view.num_computed.key[0] + index
        case "attention":
            return "attended", index
        case "proposed":
            return "draft_tokens", index
        case "logits":
            return "logits", index * spec.vocab_size
        case "kv" | "drafter_kv":
            return variable, int(data["slots"][index])
        case "poisoned":
            return "kv", blocks[index] * spec.block_size
        case "kv_at_end" | "drafter_kv_at_end":
            slot = blocks[index // spec.block_size] * spec.block_size + index % spec.block_size
            return variable.removesuffix("_at_end"), slot
        case "block_state_at_end":
            return "block_states", blocks[index]
        case "block_window_at_end":
            block, offset = divmod(index, width - 1)
            return "block_windows", blocks[block] * (width - 1) + offset
        case "block_state" | "block_window":
            assert view is not None
            words = 1 if variable == "block_state" else width - 1
            place, offset = divmod(index, words)
            row, column = divmod(place, num_block_columns(spec.block_size, k))
            n, d = (
                int(data["inputs"][FIELDS.index(name) * rows_max + row]) for name in ("num_scheduled", "num_drafts")
            )
            computed = int(data["num_computed"][view.num_computed.key[0] + row])
            column += max(computed + n - d - 2, 0) // spec.block_size
            layout = specstorm_target(run.target).engine.runner.memory.layout
            block = int(data["inputs"][layout.block_table + row * layout.max_blocks + column])
            return variable + "s", block * words + offset
        case "slot_accepted" | "carried":
            return variable, int(data["inputs"][state_slot + index])
        case "state" | "drafter_state":
            slot = int(data["inputs"][state_slot + index])
            return variable + "s", slot * (2 + k) + int(data["accepted"][index])
        case "window" | "drafter_window":
            row, offset = divmod(index, width - 1)
            slot = int(data["inputs"][state_slot + row])
            return variable.replace("window", "conv"), slot * (width + k) + int(data["accepted"][row]) + offset
        case name:
            return name, index


def memory_of(machine: Machine) -> dict[str, NDArray[Any]]:
    """Return writable views of all device buffers."""
    return {
        name: _data_of(buffer).view(np.uint32 if _data_of(buffer).itemsize == 4 else np.int64)
        for name, buffer in machine.buffers.items()
        if not buffer.pinned
    }


def _data_of(buffer: Any) -> NDArray[Any]:
    data: NDArray[Any] = buffer._data
    return data


def flip(machine: Machine, name: str, index: int, bit: int) -> None:
    """Flip one bit of device memory."""
    words = memory_of(machine)[name]
    words[index : index + 1].view(np.uint8)[bit // 8 % words.itemsize] ^= 1 << bit % 8
