"""SGLang scheduler on a CPU, whose event loop receives requests at given iterations."""

from array import array
from collections.abc import Sequence
from typing import Any

from sglang.srt.distributed import bootstrap, parallel_state
from sglang.srt.managers.io_struct import (
    AbortReq,
    BatchTokenIDOutput,
    TokenizedGenerateReqInput,
)
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.ipc_channels import SchedulerIpcChannels
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, ServerArgs

MAX_STEPS = 500


class Outbox:
    """Collects the messages that a scheduler sends."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send_output(self, output: Any, recv_obj: Any = None) -> None:
        self.sent.append(output)


class Script:
    """Request receiver: iteration `i` of the event loop receives `steps[i]`."""

    def __init__(self, scheduler: Scheduler, steps: dict[int, list[Any]]) -> None:
        self.scheduler, self.steps, self.step = scheduler, dict(steps), 0

    def recv_requests(self, local_reqs: Sequence[Any] | None = None) -> list[Any]:
        """Return this iteration's requests; end the loop if nothing is left to do."""
        assert self.step < MAX_STEPS, "some request never ends"
        coming = self.steps.pop(self.step, [])
        self.step += 1
        if not self.steps and not coming and self.scheduler.is_fully_idle():
            self.scheduler.gracefully_exit = True
        return [*coming, *(local_reqs or ())]


def make_scheduler(model: str, monkeypatch: Any, **options: Any) -> Scheduler:
    """Return a scheduler of a tiny model; its messages are in `outbox`."""
    if bootstrap._PARALLEL_INITIALISED:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()
    outbox = Outbox()
    channels = SchedulerIpcChannels(
        recv_from_tokenizer=None,
        recv_from_rpc=None,
        send_to_tokenizer=outbox,
        send_to_detokenizer=outbox,
        send_metrics_from_scheduler=None,
    )
    monkeypatch.setattr(SchedulerIpcChannels, "create", lambda **options: channels)
    args = ServerArgs(
        model_path=model,
        # No end-of-sequence token: only stop tokens end an output early.
        json_model_override_args='{"eos_token_id": null}',
        skip_tokenizer_init=True,
        dtype="float32",
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        disable_cuda_graph=True,
        random_seed=0,
        **options,
    )
    ranks = SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
    publish(args, role="scheduler", ranks=ranks)
    scheduler = Scheduler(args, PortArgs.init_new(args))
    scheduler.outbox = outbox
    return scheduler


def request(
    name: str,
    prompt: list[int],
    tokens: int,
    priority: int | None = None,
    **sampling: Any,
) -> TokenizedGenerateReqInput:
    """Return a request as the scheduler receives it."""
    params = SamplingParams(max_new_tokens=tokens, **sampling)
    params.normalize(None)
    return TokenizedGenerateReqInput(
        rid=name,
        input_text=None,
        input_ids=array("q", prompt),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=params,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=True,
        priority=priority,
    )


def abort(name: str) -> AbortReq:
    """Return the message that aborts a request."""
    return AbortReq(rid=name)


def outputs_of(
    scheduler: Scheduler, steps: dict[int, list[Any]]
) -> dict[str, list[int]]:
    """Run the event loop to its end; return each request's output tokens."""
    scheduler.gracefully_exit = False
    scheduler.request_receiver = Script(scheduler, steps)
    scheduler.run_event_loop()
    outputs: dict[str, list[int]] = {}
    for output in scheduler.outbox.sent:
        if isinstance(output, BatchTokenIDOutput):
            for name, tokens in zip(output.rids, output.output_ids, strict=True):
                outputs.setdefault(name, []).extend(tokens)
    return outputs
