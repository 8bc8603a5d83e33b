"""The ops of a step in sequence on shared buffers, launched or captured in a CUDA graph."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.launches import DEVICE
from workers.kernels.attention import numpy as attention
from workers.kernels.attention import triton as triton_attention
from workers.kernels.attention.definition import Attention
from workers.kernels.compute_logits import numpy as compute_logits
from workers.kernels.compute_logits import triton as triton_compute_logits
from workers.kernels.compute_logits.definition import ComputeLogits
from workers.kernels.copies import triton as copies
from workers.kernels.copies.definition import CopyInputs
from workers.kernels.draft_slots import definition as draft_slots
from workers.kernels.draft_slots import triton as triton_draft_slots
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.eagle import numpy as draft
from workers.kernels.eagle import triton as triton_draft
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass
from workers.kernels.kv_write import numpy as kv_write
from workers.kernels.kv_write import triton as triton_kv_write
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.poison import definition as poison
from workers.kernels.poison import triton as triton_poison
from workers.kernels.poison.definition import Poison
from workers.kernels.recurrent_update import numpy as recurrent_update
from workers.kernels.recurrent_update import triton as triton_recurrent_update
from workers.kernels.recurrent_update.definition import RecurrentUpdate
from workers.kernels.rejection_sample import numpy as rejection_sample
from workers.kernels.rejection_sample import triton as triton_rejection_sample
from workers.kernels.rejection_sample.definition import RejectionSample

K, VOCAB_SIZE, WIDTH, BLOCK_SIZE = 3, 31, 4, 4
DEFINITIONS = (poison, kv_write, attention, recurrent_update, compute_logits, rejection_sample, draft_slots, draft)
TWINS = (
    triton_poison,
    triton_kv_write,
    triton_attention,
    triton_recurrent_update,
    triton_compute_logits,
    triton_rejection_sample,
    triton_draft_slots,
    triton_draft,
)
# The states of columns that no row keeps are not the same in both.
COMPARED = (
    "kv",
    "drafter_kv",
    "hidden",
    "attended",
    "logits",
    "sampled",
    "drafter_hidden",
    "raw",
    "draft_slots",
    "draft_tokens",
)


def buffers_of(batch: Case) -> dict[str, np.ndarray[Any, Any]]:
    """Return the contents of every buffer before the step."""
    rows, width = batch.num_rows, 1 + K
    last = np.where(batch.num_scheduled > 0, batch.query_start + batch.num_scheduled - 1, 0)
    return {
        "blocks": np.array([batch.num_blocks - 1]),
        "input_ids": batch.tokens(VOCAB_SIZE),
        "positions": batch.positions,
        "slots": batch.slots,
        "token_row": batch.token_row,
        "block_table": batch.block_table,
        "num_computed": batch.num_computed,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "state_slot": batch.state_slot,
        "accepted": np.where(batch.num_computed > 0, batch.rng.integers(0, 2 + K, rows), 0),
        "invalid": np.zeros(rows, dtype=np.int64),
        "scheduled_drafts": batch.rng.integers(-1, VOCAB_SIZE, rows * K),
        "token_index": last,
        "next_tokens": batch.rng.integers(0, VOCAB_SIZE, rows),
        "valid": (batch.num_scheduled > 0).astype(np.int64),
        "script": batch.rng.integers(0, VOCAB_SIZE, batch.num_state_slots * batch.max_model_len),
        "hidden": batch.words(batch.num_tokens),
        "attended": batch.words(batch.num_tokens),
        "drafter_hidden": batch.words(batch.num_tokens),
        "kv": batch.words(batch.num_blocks * BLOCK_SIZE),
        "drafter_kv": batch.words(batch.num_blocks * BLOCK_SIZE),
        "states": batch.words(batch.num_state_slots * (2 + K)),
        "conv": batch.words(batch.num_state_slots * (WIDTH + K)),
        "logits": np.full(rows * width * VOCAB_SIZE, np.nan, dtype=np.float32),
        "sampled": batch.integers(rows * width),
        "raw": batch.words(rows * K),
        "draft_slots": batch.integers(rows * K),
        "draft_tokens": batch.integers(rows * K),
    }


def step(ops: tuple[ModuleType, ...], batch: Case, b: dict[str, Any]) -> None:
    """Run target, verification and drafter over the buffers."""
    poisoning, write, attend, recur, score, sample, mapping, drafter = ops
    blocks, queries = batch.num_blocks_max, int(batch.num_scheduled.max())
    rows = (b["query_start"], b["num_scheduled"], b["num_drafts"])
    poisoning.poison(Poison(b["blocks"], b["kv"], b["drafter_kv"], 1, BLOCK_SIZE))
    write.kv_write(KvWrite(b["input_ids"], b["positions"], b["slots"], b["hidden"], b["kv"], 0))
    attend.attention(Attention(
        b["kv"], b["block_table"], b["token_row"], b["positions"], b["hidden"], b["attended"],
        BLOCK_SIZE, batch.max_blocks, blocks,
    ))  # fmt: skip
    recur.recurrent_update(RecurrentUpdate(
        b["hidden"], b["num_computed"], *rows, b["state_slot"], b["accepted"], b["states"], b["conv"],
        queries, K, WIDTH,
    ))  # fmt: skip
    score.compute_logits(ComputeLogits(b["hidden"], *rows, b["logits"], K, VOCAB_SIZE))
    sample.rejection_sample(RejectionSample(
        b["logits"], b["scheduled_drafts"], *rows[1:], b["invalid"], b["sampled"], K, VOCAB_SIZE
    ))  # fmt: skip
    drafter.draft_first_pass(DraftFirstPass(
        b["hidden"], b["input_ids"], b["positions"], b["slots"], b["token_index"], b["next_tokens"],
        b["num_scheduled"], b["drafter_hidden"], b["drafter_kv"],
    ))  # fmt: skip
    mapping.draft_slots(DraftSlots(
        b["positions"], b["token_index"], b["num_scheduled"], b["block_table"], b["draft_slots"],
        BLOCK_SIZE, batch.max_blocks, batch.max_model_len, K, K,
    ))  # fmt: skip
    drafter.draft_chain(
        DraftChain(
            **{name: b[name] for name, mode in DraftChain.modes().items() if mode != "int"},
            block_size=BLOCK_SIZE,
            max_blocks=batch.max_blocks,
            num_blocks_max=blocks,
            max_model_len=batch.max_model_len,
            num_speculative_tokens=K,
            num_proposed=K,
        )
    )


def tensors_of(buffers: dict[str, np.ndarray[Any, Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values.copy()).to(DEVICE) for name, values in buffers.items()}


def launched(run: Callable[[dict[str, Any]], None], buffers: dict[str, Any]) -> dict[str, Any]:
    tensors = tensors_of(buffers)
    run(tensors)
    return tensors


def captured(run: Callable[[dict[str, Any]], None], buffers: dict[str, Any]) -> dict[str, Any]:
    """Capture a step and replay it on memory that only the replay has written."""
    launched(run, buffers)  # compiles the kernels
    tensors, pristine = tensors_of(buffers), tensors_of(buffers)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        allocated = torch.cuda.memory_allocated()
        for name, tensor in tensors.items():
            copies.copy_inputs(CopyInputs(pristine[name], tensor))
        run(tensors)
        assert torch.cuda.memory_allocated() == allocated, "a launch allocates device memory"
    for tensor in tensors.values():
        tensor.view(torch.uint8).fill_(0x5A)
    graph.replay()
    torch.cuda.synchronize()
    return tensors


@pytest.mark.parametrize(
    "run_as", [launched, pytest.param(captured, marks=pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA"))]
)
@pytest.mark.parametrize(("num_rows", "padding"), [(1, 0), (33, 3)])
def test_step_of_kernels_equals_step_of_definitions(
    num_rows: int, padding: int, run_as: Callable[..., dict[str, torch.Tensor]]
) -> None:
    batch = case(num_rows, K, BLOCK_SIZE, padding)
    buffers = buffers_of(batch)
    tensors = run_as(lambda made: step(TWINS, batch, made), buffers)
    expected = {name: values.copy() for name, values in buffers.items()}
    step(DEFINITIONS, batch, expected)
    for name in COMPARED:
        np.testing.assert_array_equal(tensors[name].cpu().numpy(), expected[name], name)
