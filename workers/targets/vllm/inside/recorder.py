"""Recorder of an engine's steps: scheduler outputs, model inputs, and results.

Device tensors are read back in order on the engine's own stream; the race detector does not count these reads as
accesses or synchronization. The model runner is wrapped where its inputs are ready, the scheduler where it processes
results.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from scenarios.spec import EngineName
from workers.targets.child.inside.observations import Observations, digests
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.inside.readback import Parts, Readback
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.drafting import NO_DRAFTER, DrafterObserver, drafter_of
from workers.targets.vllm.inside.graphs import bounds_of
from workers.targets.vllm.inside.plans import PlanRecorder
from workers.targets.vllm.inside.recurrent_states import copies_of, states_of
from workers.targets.vllm.inside.sampler_states import SamplerObserver
from workers.targets.vllm.inside.transfer.groups import group_numbers, window_numbers
from workers.targets.vllm.names import RunnerName

# Receives a runner's inputs of a step: request ids by row, draft tokens per row, and tensors by name.
Inputs = Callable[..., None]


class RunnerObserver(Protocol):
    """Observes a model runner's inputs by wrapping its methods, until `release`."""

    def release(self) -> None:
        """Restore the runner's methods."""

    def mirrored(self) -> dict[str, int]:
        """Return the host's computed-token counts by request, if this runner corrects them later."""

    def held(self) -> dict[str, int]:
        """Return how many requests and batch rows the runner still has."""


def runner_of(engine: Any) -> Any:
    """Return the model runner of an engine; None if its ranks are other processes."""
    driver = getattr(engine.model_executor, "driver_worker", None)
    return driver.worker.model_runner if driver is not None else None


def runners_of(engine: Any) -> Mapping[str, Any]:
    """Return the model runners of an engine, one per rank, by their prefix in reports."""
    processes = getattr(engine.model_executor, "processes", None)
    if processes is None:
        runner = runner_of(engine)
        return {"": runner} if runner is not None else {}
    return {f"rank {rank}: ": each.worker.worker.model_runner for rank, each in processes.items()}


def zeroer_of(runner: Any) -> Any:
    """Return the runner's `KVBlockZeroer`, or None if new KV-cache blocks are not zeroed."""
    return getattr(runner, "kv_block_zeroer", None) or getattr(runner, "_kv_block_zeroer", None)


def first_layers(config: Any) -> list[str]:
    """Return one layer's name for the full-attention group and for each recurrent-state group."""
    return [config.kv_cache_groups[number].layer_names[0] for number in group_numbers(config)]


def window_tensors(groups: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return slot mappings and block tables of sliding-window groups, named by group number."""
    names = "window_slots", "window_tables"
    return {
        f"{name}_{number}": tensor
        for number, group in enumerate(groups)
        for name, tensor in zip(names, group, strict=True)
    }


def by_group(values: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Merge a step's inputs of each KV-cache group into lists, by the group number in the name."""
    inputs: dict[str, Any] = {}
    states: dict[int, dict[str, list[Any]]] = {}
    windows: dict[int, dict[str, list[Any]]] = {}
    for name, value in values.items():
        kind, _, number = name.rpartition("_")
        if not number.isdecimal():
            inputs[name] = value
        elif kind.startswith("window_"):
            windows.setdefault(int(number), {})[kind.removeprefix("window_")] = value
        else:
            states.setdefault(int(number), {})[kind] = value
    of_groups = {"states": states, "windows": windows}
    return inputs | {name: [found[number] for number in sorted(found)] for name, found in of_groups.items()}


def _judge_names(point: str, name: str) -> tuple[str, ...]:
    """Map a tensor name with a group number to the name that the judges use."""
    kind, _, group = name.rpartition("_")
    name = kind if group.isdecimal() else name
    if point in ("drafting", "context") and name == "hidden_states":
        return (name,)
    if point == "hidden_states":
        return ()
    if point in ("drafting", "context"):
        return (f"draft_{name}",)
    # `verified` are the draft tokens in the target's inputs.
    return (name, "verified") if name == "input_ids" else (name,)


class FirstRunnerObserver:
    """Observes vLLM's first model runner (V1), which keeps batch rows between steps."""

    def __init__(self, runner: Any, inputs: Inputs) -> None:
        self._runner, self._inputs = runner, inputs
        self._drafts: dict[str, int] = {}
        self._prepare: Callable[..., Any] = runner._prepare_inputs
        self._forward: Callable[..., Any] = runner._model_forward
        runner._prepare_inputs = self._observed_prepare
        runner._model_forward = self._observed_forward

    def release(self) -> None:
        del self._runner._prepare_inputs, self._runner._model_forward

    def mirrored(self) -> dict[str, int]:
        batch = self._runner.input_batch
        return dict(zip(batch.req_ids, batch.num_computed_tokens_cpu[: batch.num_reqs].tolist(), strict=True))

    def held(self) -> dict[str, int]:
        num_rows = self._runner.input_batch.num_reqs
        return {"requests of the runner": len(self._runner.requests), "rows of the batch": num_rows}

    def _observed_prepare(self, plan: Any, *arguments: Any, **options: Any) -> Any:
        # Some draft tokens of ngram_gpu are removed from the plan before its execution.
        self._drafts = {name: len(drafts) for name, drafts in plan.scheduled_spec_decode_tokens.items()}
        return self._prepare(plan, *arguments, **options)

    def _observed_forward(self, *arguments: Any, **options: Any) -> Any:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415  import after our replacements in vLLM

        of_layers, config = get_forward_context().attn_metadata, self._runner.kv_cache_config
        metadata, *with_states = (of_layers[name] for name in first_layers(config))
        windows = [of_layers[config.kv_cache_groups[number].layer_names[0]] for number in window_numbers(config)]
        names = list(self._runner.input_batch.req_ids)
        tensors = {
            "input_ids": options["input_ids"],
            "positions": options["positions"],
            "slots": metadata.slot_mapping,
            "starts": metadata.query_start_loc[: len(names) + 1],
            "seq_lens": metadata.seq_lens[: len(names)],
            "tables": metadata.block_table[: len(names)],
            **window_tensors([(each.slot_mapping, each.block_table[: len(names)]) for each in windows]),
            **states_of(with_states),
            **copies_of(self._runner._mamba_bufs, len(names)),
        }
        drafts = [self._drafts.get(name, 0) for name in names]
        bounds = bounds_of(first_layers(config)[0])
        self._inputs(names, drafts, tensors, bounds=bounds[: len(names)])
        return self._forward(*arguments, **options)


class SecondRunnerObserver:
    """Observes vLLM's second model runner (V2), whose exact counts are on the device."""

    def __init__(self, runner: Any, inputs: Inputs) -> None:
        self._runner, self._inputs = runner, inputs
        self._prepared: tuple[Any, Sequence[torch.Tensor], Sequence[torch.Tensor]] | None = None
        # Receives the request ids of a batch and the hidden states of its tokens, one tensor for each layer, if set.
        self.hidden_states: Callable[[list[str], list[torch.Tensor]], None] | None = None
        self._batch: Any = None
        self._prepare: Callable[..., Any] = runner.prepare_attn
        self._forward: Callable[..., Any] = runner.model.forward
        runner.prepare_attn = self._observed_prepare
        runner.model.forward = self._observed_forward
        self._metadata: Mapping[str, Any] = {}
        graphs = getattr(runner, "cudagraph_manager", None)
        self._has_graphs = graphs is not None and graphs.needs_capture()
        if self._has_graphs:
            self._observe_replays(graphs, runner.model_state)

    def _observe_replays(self, graphs: Any, state: Any) -> None:
        """Wrap CUDA graph replays, which call no Python method of the model."""
        replay, run_pieces, prepare_metadata = graphs.run_fullgraph, graphs.run_pw_graph, state.prepare_attn

        def prepared(*arguments: Any, **options: Any) -> Any:
            self._metadata = prepare_metadata(*arguments, **options)
            return self._metadata

        def replayed(descriptor: Any) -> Any:
            # The captured kernels read these buffers.
            buffers, count = self._runner.input_buffers, descriptor.num_tokens
            self._observe(self._metadata, buffers.input_ids[:count], buffers.positions[:count])
            return self._returned(replay(descriptor))

        def run(model: Any, inputs: Any) -> Any:
            self._observe(self._metadata, inputs["input_ids"], inputs["positions"])
            return self._returned(run_pieces(model, inputs))

        graphs.run_fullgraph, graphs.run_pw_graph, state.prepare_attn = replayed, run, prepared

    def release(self) -> None:
        del self._runner.prepare_attn, self._runner.model.forward
        if self._has_graphs:
            graphs = self._runner.cudagraph_manager
            del graphs.run_fullgraph, graphs.run_pw_graph, self._runner.model_state.prepare_attn

    def mirrored(self) -> dict[str, int]:
        """Return {}: this runner never corrects its host counts, which are upper bounds."""
        return {}

    def held(self) -> dict[str, int]:
        """Return how many requests and occupied batch rows the runner still has."""
        states = self._runner.req_states
        num_rows = states.max_num_reqs - len(states.free_indices)
        return {"requests of the runner": len(states.req_id_to_index), "rows of the runner": num_rows}

    def _observed_prepare(self, batch: Any, *arguments: Any, **options: Any) -> Any:
        tables, slots = self._prepare(batch, *arguments, **options)
        self._prepared = batch, tables, slots
        return tables, slots

    def _observed_forward(self, *arguments: Any, **options: Any) -> Any:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415

        self._observe(get_forward_context().attn_metadata, options["input_ids"], options["positions"])
        return self._returned(self._forward(*arguments, **options))

    def _returned(self, made: Any) -> Any:
        """Observe the hidden states that the model returned for the latest batch; return what it returned.

        If there are auxiliary ones, the drafter receives these.
        """
        batch, self._batch = self._batch, None
        if batch is not None and self.hidden_states is not None:
            states = made[1] if isinstance(made, tuple) else [made]
            self.hidden_states(list(batch.req_ids), [each[: batch.num_tokens] for each in states])
        return made

    def _observe(self, of_layers: Mapping[str, Any], input_ids: torch.Tensor | None, positions: torch.Tensor) -> None:
        """Record the model inputs of the batch that was prepared last.

        Only the first of several pipeline ranks passes token ids to the model; the last one verifies its own.
        """
        if self._prepared is None:
            # A batch of padding only belongs to no step.
            return
        (batch, tables, slots), self._prepared = self._prepared, None
        self._batch = batch
        config = self._runner.kv_cache_config
        _, *with_states = first_layers(config)
        attention, count = group_numbers(config)[0], batch.num_reqs
        tensors = {
            "input_ids": batch.input_ids if input_ids is None else input_ids,
            "positions": positions,
            "slots": slots[attention],
            "starts": batch.query_start_loc[: count + 1],
            "seq_lens": batch.seq_lens[:count],
            "tables": tables[attention][:count],
            **window_tensors([(slots[number], tables[number][:count]) for number in window_numbers(config)]),
            **states_of([of_layers[name] for name in with_states]),
        }
        drafts = batch.num_draft_tokens_per_req
        bounds = batch.seq_lens_cpu_upper_bound[:count].tolist()
        self._inputs(list(batch.req_ids), [0] * count if drafts is None else drafts.tolist(), tensors, bounds=bounds)


_RUNNERS: Mapping[RunnerName, Callable[[Any, Inputs], RunnerObserver]] = {
    "v1": FirstRunnerObserver,
    "v2": SecondRunnerObserver,
}


class StepRecorder(PlanRecorder):
    """Records the steps of one engine in `seen`, in the order in which the device runs them."""

    def __init__(
        self,
        engine: Any,
        runner: RunnerName,
        readback: Readback,
        number_of: Callable[[str], int],
        seen: list[Message],
        of: EngineName,
        hosts: Hosts | None = None,
    ) -> None:
        super().__init__(engine.scheduler, number_of, Observations(readback, number_of, _judge_names, seen, of, hosts))
        drafter = drafter_of(runner_of(engine))
        # If its lookup finds nothing, the second runner verifies filler tokens.
        traits = drafter.traits if drafter is not None else {**NO_DRAFTER, "lookups_filled_up": runner == "v2"}
        self.opened(engine.vllm_config, traits)
        self._runner, *self._further = (
            _RUNNERS[runner](each, partial(self._inputs, rank=rank))
            for rank, each in enumerate(runners_of(engine).values())
        )
        self._drafter = DrafterObserver(drafter, runner_of(engine), self._seen) if drafter is not None else None
        if traits["receives_hidden_states"]:
            observers = zip(runners_of(engine).values(), (self._runner, *self._further), strict=True)
            of_drafter = next(observer for each, observer in observers if each is runner_of(engine))
            assert isinstance(of_drafter, SecondRunnerObserver), "the first runner does not show hidden states"
            of_drafter.hidden_states = self._hidden_states
        self._sampler = None
        if runner == "v2":
            keeps_draft_logits = traits["keeps_draft_logits"]
            self._sampler = SamplerObserver(runner_of(engine), self._seen, keeps_draft_logits=keeps_draft_logits)
        self._zeroer = zeroer_of(runner_of(engine))
        if self._zeroer is not None:
            self._zero: Callable[..., None] = self._zeroer.zero_block_ids
            self._zeroer.zero_block_ids = self._observed_zero

    def release(self) -> None:
        if self._zeroer is not None:
            del self._zeroer.zero_block_ids
        for each in (self._runner, *self._further):
            each.release()
        if self._sampler is not None:
            self._sampler.release()
        if self._drafter is not None:
            self._drafter.release()
        super().release()

    def stepped(self) -> None:
        """Record the host's computed-token counts after a step, if the runner corrects them."""
        counts = self._runner.mirrored()
        if self._seen.step >= 0 and counts:
            self._seen.note("corrected", list(counts), mirror_computed=list(counts.values()))

    def drained(self, more: Mapping[str, int]) -> None:
        super().drained({**self._runner.held(), **more})

    def _observed_zero(self, blocks: list[int], *arguments: Any, **options: Any) -> None:
        self._zero(blocks, *arguments, **options)
        self._seen.observe("zeroed", [], {}, blocks=list(blocks))

    def _hidden_states(self, names: list[str], states: list[torch.Tensor]) -> None:
        self._seen.read(
            "hidden_states", names, {"states": states}, lambda views: {"hidden_states": digests(views["states"])}
        )

    def _inputs(
        self,
        names: list[str],
        drafts: list[int],
        tensors: Mapping[str, torch.Tensor | Parts],
        bounds: Sequence[int] = (),
        rank: int = 0,
    ) -> None:
        def made(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            return by_group({name: [row for view in given for row in view.tolist()] for name, given in views.items()})

        of_rank = {"rank": rank} if rank else {}
        point = "rank_inputs" if rank else "inputs"
        self._seen.read(point, names, tensors, made, drafts=drafts, bounds=list(bounds), **of_rank)
