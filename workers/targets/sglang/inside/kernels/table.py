"""Table of the definitions of SGLang's kernels, by the qualified names of these."""

from workers.targets.sglang.inside.kernels import drafting, slots, trees
from workers.targets.simulated_torch.kernel_definitions import Definition

TABLE: dict[str, Definition] = {**drafting.DEFINITIONS, **slots.DEFINITIONS, **trees.DEFINITIONS}
