"""The arithmetic of the kernels equals `workers.record.model`, also on extreme words."""

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from tests.workers.kernels.triton.launches import DEVICE
from workers.kernels.arithmetic import triton as arithmetic
from workers.kernels.arithmetic.triton import attention, draft_hidden, embed, kv_entry, logit, mix, window_weight
from workers.record import model

COUNT = 256
FUNCTIONS = 7


@triton.jit
def _every_function(p_x, p_y, p_small, p_out, layer: tl.constexpr, COUNT: tl.constexpr):
    o = tl.arange(0, COUNT)
    b_x, b_y, b_small = tl.load(p_x + o), tl.load(p_y + o), tl.load(p_small + o)
    tl.store(p_out + o, mix(b_x))
    tl.store(p_out + COUNT + o, embed(b_small))
    tl.store(p_out + 2 * COUNT + o, kv_entry(b_x, b_small, layer))
    tl.store(p_out + 3 * COUNT + o, attention(b_x, b_y, b_small))
    tl.store(p_out + 4 * COUNT + o, draft_hidden(b_x, b_small))
    tl.store(p_out + 5 * COUNT + o, window_weight(b_small))
    tl.store(p_out + 6 * COUNT + o, logit(b_x, b_small).to(tl.uint64))


def words(rng: np.random.Generator) -> NDArray[Any]:
    edges = [0, 1, model.MASK, model.MASK - 1, 1 << 63, (1 << 63) - 1, 1 << 32]
    drawn = rng.integers(0, 1 << 64, COUNT, dtype=np.uint64)
    drawn[: len(edges)] = edges
    return rng.permutation(drawn)


@pytest.mark.parametrize("layer", [0, 1, 7, model.DRAFTER_LAYER])
def test_triton_arithmetic_equals_scalar_arithmetic(layer: int) -> None:
    rng = np.random.default_rng(layer)
    x, y, small = words(rng), words(rng), rng.integers(0, 1 << 20, COUNT)
    small[:2] = 0, (1 << 31) + 5
    out = torch.from_numpy(np.zeros(FUNCTIONS * COUNT, dtype=np.uint64)).to(DEVICE)
    _every_function[(1,)](*(torch.from_numpy(each).to(DEVICE) for each in (x, y, small)), out, layer, COUNT)
    found = out.cpu().numpy().reshape(FUNCTIONS, COUNT)
    for index in range(COUNT):
        a, b, c = int(x[index]), int(y[index]), int(small[index])
        assert found[:, index].tolist() == [
            model.mix(a),
            model.embed(c),
            model.kv_entry(a, c, layer),
            model.attention(a, b, c),
            model.draft_hidden(a, c),
            (2 * c + 1) * model.GOLDEN & model.MASK,
            model.logit(a, c),
        ]


def test_arithmetic_constants_equal_model_constants() -> None:
    for name in ("GOLDEN", "POSITION", "LAYER", "VOCABULARY", "DECAY", "DRAFTER_LAYER", "LOGIT_SHIFT"):
        assert getattr(arithmetic, name).value == getattr(model, name), name
