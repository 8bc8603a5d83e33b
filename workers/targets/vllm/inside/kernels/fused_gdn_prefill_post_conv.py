"""NumPy definition of the gated-delta-net kernel `...ops.fused_gdn_prefill_post_conv`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.delta_rule import sigmoid, squares
from workers.targets.vllm.inside.kernels.fused_recurrent import is_in_float32

MODULE = "vllm.third_party.flash_linear_attention.ops.fused_gdn_prefill_post_conv"


def post_conv(programs: tuple[int, ...], args: Given) -> None:
    """Split the convolution's output into queries, keys and values; compute gates and betas."""
    count, heads, one = args.L, args.HV, np.float32(1)
    widths = args.H * args.K, args.H * args.K, heads * args.V
    first = 0
    for pointer, stride, width in zip(
        (args.q_ptr, args.k_ptr, args.v_ptr),
        (args.stride_q_tok, args.stride_k_tok, args.stride_v_tok),
        widths,
        strict=True,
    ):
        rows = args.mixed_qkv_ptr.rows(first, (count, width), (args.stride_x_tok, 1))
        if args.APPLY_L2NORM and pointer is not args.v_ptr:
            split = rows.reshape(count, args.H, args.K)
            rows = (split * (one / np.sqrt(squares(split)))).reshape(count, width)
        pointer.rows(0, (count, width), (stride, 1))[:] = rows
        first += width
    steps = args.a_ptr.rows(0, (count, heads), (args.stride_a_tok, 1)) + args.dt_bias_ptr.span(0, heads)
    soft = np.where(steps > 0, steps + np.log(one + np.exp(-steps)), np.log(one + np.exp(steps)))
    soft = np.where(steps <= np.float32(args.SOFTPLUS_THRESHOLD), soft, steps)
    gates = -np.exp(args.A_log_ptr.span(0, heads)) * soft
    args.g_ptr.rows(0, (count, heads), (heads, 1))[:] = np.exp(gates) if args.OUTPUT_G_EXP else gates
    betas = sigmoid(args.b_ptr.rows(0, (count, heads), (args.stride_b_tok, 1)))
    args.beta_ptr.rows(0, (count, heads), (heads, 1))[:] = betas


def _is_plain(args: Mapping[str, Any]) -> bool:
    return is_in_float32(args, "mixed_qkv_ptr a_ptr b_ptr A_log_ptr dt_bias_ptr q_ptr k_ptr v_ptr g_ptr beta_ptr")


DEFINITIONS = {
    "_fused_post_conv_kernel": Definition(
        post_conv,
        "1794c9aa04396c3b",
        _is_plain,
        # In a process without Triton, where the kernel's source differs.
        others=(Definition(post_conv, "d9dd257e03fb5561", _is_plain),),
    ),
}
