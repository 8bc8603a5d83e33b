"""A retracted request repeats tokens that a penalty should suppress.

A scheduler in this process, on a CPU. Fails on SGLang 0.5.23.
Written by `specstorm export` from findings/sglang_penalties_forgotten/trace.yaml.
"""

import json
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
os.environ["SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"] = "8"

from sglang.srt.distributed import bootstrap, parallel_state
from sglang.srt.managers.io_struct import BatchTokenIDOutput, TokenizedGenerateReqInput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.ipc_channels import SchedulerIpcChannels
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, ServerArgs

HIDDEN = 64
INTERMEDIATE = 96
MAX_STEPS = 500


def decoder_layer(
    prefix: str, generator: torch.Generator, scale: float
) -> dict[str, torch.Tensor]:
    """Return random decoder-layer weights; `scale` multiplies its output weights."""
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN, 3),
        "self_attn.k_proj": (HIDDEN // 2, HIDDEN, 3),
        "self_attn.v_proj": (HIDDEN // 2, HIDDEN, 1),
        "self_attn.o_proj": (HIDDEN, HIDDEN, 2 * scale),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN, 1),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN, 1),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE, 2 * scale),
    }
    weights = {
        "input_layernorm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    for name, (rows, columns, factor) in shapes.items():
        weights[name] = torch.randn(rows, columns, generator=generator) * (
            factor * HIDDEN**-0.5
        )
    return {f"{prefix}.{name}.weight": weight for name, weight in weights.items()}


def llama(vocab_size: int, seed: int) -> dict[str, torch.Tensor]:
    """Return random weights of a Llama with two layers."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "model.embed_tokens.weight": torch.randn(
            vocab_size, HIDDEN, generator=generator
        ),
        "lm_head.weight": torch.randn(vocab_size, HIDDEN, generator=generator) * 0.5,
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for index in range(2):
        weights |= decoder_layer(f"model.layers.{index}", generator, 0.45)
    return weights


def save_config(folder: Path, vocab_size: int, num_layers: int = 2) -> str:
    """Write a model's `config.json` into a new folder; return the folder."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def save_model(
    folder: Path, weights: dict[str, torch.Tensor], vocab_size: int, num_layers: int = 2
) -> str:
    """Write a model's configuration and weights to a new folder; return its path."""
    path = save_config(folder, vocab_size, num_layers)
    save_file(weights, folder / "model.safetensors")
    return path


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


def test_penalties_forgotten(tmp_path, monkeypatch):
    model = save_model(tmp_path / "model", llama(32, seed=11234929914115), 32)
    scheduler = make_scheduler(
        model,
        monkeypatch,
        max_total_tokens=56,
        page_size=4,
        max_running_requests=3,
        schedule_conservativeness=0.1,
        chunked_prefill_size=32,
        context_length=46,
        disable_radix_cache=True,
        disable_overlap_schedule=True,
    )
    steps = {
        0: [
            request(
                "a",
                [5, 9, 3, 11, 20, 7, 8, 2],
                26,
                temperature=0.0,
                repetition_penalty=8.0,
            ),
            request(
                "b",
                [6, 19, 13, 1, 2, 7, 18, 12],
                26,
                temperature=0.0,
                repetition_penalty=8.0,
            ),
            request(
                "c",
                [16, 9, 23, 10, 12, 17, 18, 2],
                26,
                temperature=0.0,
                repetition_penalty=8.0,
            ),
        ],
    }
    outputs = outputs_of(scheduler, steps)
    # The request alone.
    scheduler = make_scheduler(
        model,
        monkeypatch,
        max_total_tokens=56,
        page_size=4,
        max_running_requests=3,
        schedule_conservativeness=0.1,
        chunked_prefill_size=32,
        context_length=46,
        disable_radix_cache=True,
        disable_overlap_schedule=True,
    )
    steps = {
        0: [
            request(
                "b",
                [6, 19, 13, 1, 2, 7, 18, 12],
                26,
                temperature=0.0,
                repetition_penalty=8.0,
            ),
        ],
    }
    others = outputs_of(scheduler, steps)
    assert outputs["b"] == others["b"]
