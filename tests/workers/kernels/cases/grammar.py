"""Cases of grammars: draft tokens cut by the host; masks with full, empty or partial words."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import batches, integers
from workers.kernels.grammar.definition import ApplyMasks, GrammarDrafts
from workers.kernels.process_logits.definition import BITS
from workers.kernels.sentinels import NO_DRAFT


def cases() -> Iterator[ApplyMasks | GrammarDrafts]:
    """Yield every batch; some rows have a grammar, with a bitmask per logits row."""
    for batch in batches():
        rng, width, rows = batch.rng, 1 + batch.k, batch.some_rows()
        yield GrammarDrafts(
            rows=rows,
            query_start=batch.query_start,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            host_ids=rng.integers(NO_DRAFT, 2, batch.num_tokens),
            input_ids=integers(batch.num_tokens),
            scheduled_drafts=integers(batch.num_rows * batch.k),
            num_speculative_tokens=batch.k,
        )
        columns = [row * width + column for row in rows.tolist() for column in range(1 + batch.num_drafts[row])]
        masks = rng.integers(0, 1 << BITS, (len(columns), -(-batch.vocab_size // BITS)))
        masks[0, 0], masks[-1, -1] = (1 << BITS) - 1, 0
        logits = rng.normal(size=batch.num_rows * width * batch.vocab_size).astype(np.float32)
        logits[::7] = np.nan
        yield ApplyMasks(columns=np.array(columns), masks=masks.ravel(), logits=logits, vocab_size=batch.vocab_size)
