"""Cases of the draft model's ops: with or without a recurrent layer; 1 to 3 inputs."""

from collections.abc import Iterator

from tests.workers.kernels.cases import recurrent_update
from tests.workers.kernels.cases.drafters import drafting, made
from workers.kernels.draft_model.definition import DraftModelChain, DraftModelPass, recurrent_update_of


def cases() -> Iterator[DraftModelPass | DraftModelChain]:
    """Yield arguments of `draft_model_pass` and `draft_model_chain`."""
    for index, (batch, num_proposed) in enumerate(drafting()):
        width = (2, 0, 1, 3)[index % 4]
        length = int((batch.num_computed + batch.num_scheduled).max()) + 1
        more = {
            "conv_width": width,
            "drafter_conv": batch.words(batch.num_state_slots * (width + batch.k)),
            "script": batch.rng.integers(0, 2, batch.num_state_slots * length),
        }
        yield made(DraftModelPass, batch, num_proposed, **more)
        yield made(DraftModelChain, batch, num_proposed, **more)


def undefined(a: DraftModelPass | DraftModelChain) -> dict[str, list[int]]:
    """Return a mask of the states that no accepted count of this step selects: not compared."""
    if not isinstance(a, DraftModelPass) or not a.conv_width:
        return {}
    places = recurrent_update.undefined(recurrent_update_of(a))
    return {"drafter_states": places["states"], "drafter_conv": places["conv"]}
