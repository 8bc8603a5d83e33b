"""Table of the NumPy definitions, by the qualified name of the Triton kernel they replace."""

from workers.simulated_torch.kernel_definitions import Definition
from workers.targets.vllm.inside.kernels import (
    bad_words,
    block_table,
    buffer_utils,
    causal_conv1d,
    dflash,
    fused_gdn_prefill_post_conv,
    fused_recurrent,
    fused_sigmoid_gating,
    gumbel,
    input_batch,
    logit_bias,
    logprob,
    mamba_hybrid,
    mamba_utils,
    min_p,
    ngram,
    penalties,
    prompt_logprob,
    rejection_sampler,
    rejection_sampler_utils,
    standalone_ar,
    structured_outputs,
    target_dependent_ar,
    worker_utils,
)

_MODULES = (
    bad_words,
    block_table,
    buffer_utils,
    causal_conv1d,
    dflash,
    fused_gdn_prefill_post_conv,
    fused_recurrent,
    fused_sigmoid_gating,
    gumbel,
    input_batch,
    logit_bias,
    logprob,
    mamba_hybrid,
    mamba_utils,
    min_p,
    ngram,
    penalties,
    prompt_logprob,
    rejection_sampler,
    rejection_sampler_utils,
    standalone_ar,
    structured_outputs,
    target_dependent_ar,
    worker_utils,
)
TABLE: dict[str, Definition] = {
    f"{each.MODULE}.{name}": definition for each in _MODULES for name, definition in each.DEFINITIONS.items()
}
