"""Target for our own engine, a small model engine that logs every scheduler decision."""

from collections import defaultdict
from collections.abc import Callable

from scenarios.capabilities import EVENTS, Capabilities
from scenarios.events import CONTROL_EVENTS, Abort, AnyEvent, Hook, Submit
from scenarios.probes import CONTROL_PROBES, HANDOFF_PROBES, PROBES, SESSION_PROBES, TEXT_PROBES, TRANSFER_PROBES
from scenarios.sampling import PARAMS, Output
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.drafters.drafter import DRAFTERS
from workers.engine.engine import Engine
from workers.engine.functions import EngineFunctions
from workers.engine.runner import LANES
from workers.faults.registry import FAULTS
from workers.record.evidence import Access, Fact
from workers.record.log import Entry
from workers.record.observation import VARIABLES, Observation, Recorder
from workers.targets.devices import functions_on, machine_on
from workers.targets.target import DEVICES, SPECSTORM, Progress, RunConfig, Target, TargetKind, Watch
from workers.targets.warm_up import warm_up

# Request features of this engine. It has no `logit_bias`, which would be one more op that changes logits on the device,
# and no prompt logprobs, as it computes no logits of prompt tokens.
_FEATURES = ("accept", "stop", "priority", *(name for name, each in PARAMS.items() if each.drawn is not None))
# Keys of the specification that only other engines support. This engine has no drafter weights, no kernel that handles
# decode rows and prefill chunks separately, no reasoning, no logits processors, no KV connector and no CUDA graphs. Its
# batches are padded as the key `pad` says and mix prefill chunks with decode rows, and its lanes are fixed.
_OTHERS = (
    "recurrent_layers",
    "window",
    "window_heads",
    "match_tokens",
    "drafter_quality",
    "decodes_first",
    "reasoning_end",
    "logits_processor",
    "transfer",
    "offloading",
    "handoff",
    "graphs",
    "plan_stream",
    "relay_lengths",
    "mixed_chunks",
    "tensor_ranks",
    "pipeline_ranks",
    "data_ranks",
    "tree_width",
)
# The buffers that hold a variable, such as the KV cache or the draft tokens, where their names differ from its name.
_BUFFERS_OF: dict[str, tuple[str, ...]] = {
    "draft_logits_read": ("draft_logits",),
    "poisoned": ("kv", "drafter_kv"),
    "attention": ("attended", "kv"),
    "hidden": ("hidden", "states", "conv"),
    "state": ("states", "slot_accepted"),
    "window": ("conv", "slot_accepted"),
    "block_state": ("block_states", "states"),
    "block_window": ("block_windows", "conv"),
    "block_state_at_end": ("block_states",),
    "block_window_at_end": ("block_windows",),
    "proposed": ("draft_tokens",),
    "drafter_state": ("drafter_states",),
    "drafter_window": ("drafter_conv",),
    "kv_at_end": ("kv",),
    "drafter_kv_at_end": ("drafter_kv",),
}


def _counting(probes: dict[str, int], name: str) -> Callable[[], None]:
    """Return a function that increments the probe `name` at each call."""

    def count() -> None:
        probes[name] += 1

    return count


class SpecstormTarget(Target):
    """One run of our own engine, on a simulated or a CUDA machine."""

    def __init__(self, trace: Trace, functions: EngineFunctions, config: RunConfig, watch: Watch) -> None:
        self.probes: dict[str, int] = defaultdict(int)
        for fault in trace.faults:
            functions = FAULTS[fault].apply(functions, _counting(self.probes, f"fault {fault}"))
        self.recorder = Recorder(self._writers if watch.blame else None)
        self.machine = machine_on(config, LANES, trace.schedule, watch)
        self.engine = Engine(trace.spec, functions, self.machine, self.recorder, self.probes, trace.seed)
        self._spec = trace.spec

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        self.engine.submit(event, submit, script)

    def abort(self, event: Abort) -> None:
        self.engine.abort(event.request)

    def apply(self, event: AnyEvent) -> None:
        self.engine.apply(event)

    def step(self, happen: Callable[[Hook], None]) -> None:
        self.engine.step(happen)

    def drained(self) -> bool:
        return self.engine.drained()

    def take_log(self) -> list[Entry | Observation]:
        log, self.engine.log[:] = list(self.engine.log), []
        return log

    def take_captures(self) -> list[Observation]:
        return self.recorder.take()

    def digest(self) -> str:
        return self.recorder.digest()

    def outputs(self) -> dict[str, Output]:
        return {
            name: Output(tuple(request.tokens[request.num_prompt :]), request.finish_reason, tuple(request.logprobs))
            for name, request in self.engine.requests.items()
        }

    def progress(self) -> Progress:
        observer = self.engine.observer
        return Progress(self.engine.num_submitted, observer.num_commits, observer.run_ahead_max)

    def drain(self) -> None:
        self.machine.drain()

    def left_over(self) -> Observation:
        return self.engine.left_over()

    def last_writers(self, step: int, variable: str) -> tuple[Access, ...]:
        return self.recorder.writers.get((step, variable), ())

    def _writers(self, variable: str) -> tuple[Access, ...]:
        """Return the last two writers of each buffer that contains a variable, newest first."""
        names: tuple[str, ...] = _BUFFERS_OF.get(variable, (variable,))
        if variable == "accepted_read" and self._spec.accepted_counts == "host":
            names = ("inputs", "accepted_counts")
        buffers = [self.machine.buffers[name] for name in names if name in self.machine.buffers]
        writers = (writer for buffer in buffers for writer in buffer.writers[:2])
        return tuple(Access(lane=lane, op=op, step=step) for lane, op, step in writers)

    def close(self) -> None:
        self.machine.close()


class Specstorm(TargetKind):
    """Properties of our own engine, selected by `--engine specstorm`.

    `functions` replace those of the fault-free engine on the device.
    """

    name = SPECSTORM
    capabilities = Capabilities(
        events=tuple(
            event for event in EVENTS if event not in ("submit", "disturb_transfer", "end_session", *CONTROL_EVENTS)
        ),
        features=_FEATURES,
        # The drafters have no weights: their draft tokens are scripted, or derived from the target's output tokens.
        spec=dict.fromkeys((key for key in EngineSpec.model_fields if key not in _OTHERS), ())
        | {"layers": ("hybrid", "attention"), "drafter": tuple(DRAFTERS), "logprobs_mode": ("raw", "processed")},
        devices=dict.fromkeys(DEVICES, LANES),
        probes=tuple(
            probe
            for probe in PROBES
            if probe not in (*CONTROL_PROBES, *TRANSFER_PROBES, *HANDOFF_PROBES, *SESSION_PROBES, *TEXT_PROBES)
        ),
        faults=True,
        planes=tuple(dict.fromkeys(variable.plane for variable in VARIABLES.values())),
        logs_decisions=True,
    )

    def __init__(self, functions: EngineFunctions | None = None) -> None:
        self._functions = functions

    def unmet(self, trace: Trace) -> Fact | None:
        unmet = (FAULTS[fault].missing(trace.spec) for fault in trace.faults)
        return next((message for message in unmet if message is not None), None)

    def require(self, config: RunConfig) -> None:
        functions_on(config)

    def prepare(self, config: RunConfig) -> None:
        if config.device == "cuda":
            warm_up(config)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SpecstormTarget:
        functions = self._functions if self._functions is not None else functions_on(config)
        return SpecstormTarget(trace, functions, config, watch)


def specstorm_target(target: Target) -> SpecstormTarget:
    """Return a target as `SpecstormTarget`, for code that reads the engine's internals."""
    assert isinstance(target, SpecstormTarget), f"{type(target).__name__} is not Specstorm's own engine"
    return target
