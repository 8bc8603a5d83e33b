"""Edges of batches: rows that change places, or are as short as they can be, and what runs between their steps."""

from scenarios.edge_draws import EdgeDraws
from scenarios.events import Abort, DummyStep, Stall

# The most chunks of a prompt.
CHUNKS_MAX = 16
# Ticks behind a request's arrival in which it mostly ends.
TURN_AFTER = 24


class BatchEdges(EdgeDraws):
    """One trace with edges of its batches."""

    def _behind_hits(self) -> None:
        """End the model within a run of drafts behind a block, or before it; all but a token of most prompts is cached.

        The drafter is mostly one that goes on from the last block found.
        """
        spec, run = self.spec, 1 + self.spec.num_speculative_tokens
        blocks = 1 + self._pick(3, "blocks before the end")
        is_behind = self._pick(4, "end behind a block")
        length = spec.block_size * blocks + (
            2 + self._pick(run - 1, "behind a block") if is_behind else -self._pick(run, "before a block")
        )
        self._set(
            max_model_len=length,
            num_blocks=max(spec.num_blocks, blocks + 1 + self._pick(2 * blocks, "spare blocks")),
            max_num_seqs=max(2, spec.max_num_seqs),
            max_num_batched_tokens=max(spec.max_num_batched_tokens, spec.block_size),
            long_prefill_token_threshold=0,
        )
        drafter = ("draft_model", "draft_model", "dflash", spec.drafter)[self._pick(4, "drafter behind hits")]
        self._set_if_allowed(drafter=drafter, draft_sampling="greedy")
        self._set_if_allowed(prefix_cache=bool(self._pick(4, "hits at the end")))
        for number, (place, submit) in enumerate(self._submits()):
            tokens = spec.block_size * blocks + 1 if is_behind else length - 1 - self._pick(run, "short of it", place)
            # Who comes first has been computed by then.
            self._change(place, tick=blocks + 2 + self._pick(TURN_AFTER, "behind the first", place) if number else 0)
            if not self._pick(4, "another length", place):
                tokens = min(length - 1, submit.prompt_length)
            self._lengthen(place, tokens, tokens)

    def _rows_change_places(self) -> None:
        """Let rows in front read prompts in chunks as those behind decode; half of them are banned some words."""
        spec, run = self.spec, 1 + self.spec.num_speculative_tokens
        chunk = run + 1 + self._pick(6, "chunk in front")
        self._set(
            max_num_seqs=max(3, spec.max_num_seqs),
            long_prefill_token_threshold=chunk,
            max_num_batched_tokens=max(spec.max_num_batched_tokens, 2 * (chunk + run)),
            max_model_len=max(spec.max_model_len, CHUNKS_MAX * chunk),
        )
        for place, submit in self._submits():
            tokens = 1 + self._pick(chunk, "tokens behind", place)
            if not place % 2:
                tokens = chunk * (3 + self._pick(4, "chunks in front", place)) - self._pick(chunk, "last chunk", place)
            self._lengthen(place, tokens)
            self._change(place, tick=min(submit.tick, self._pick(TURN_AFTER, "in front", place)))
            params = submit.params
            if self._pick(2, "banned", place) and not (params.grammar or params.allowed_tokens):
                count = 3 + self._pick(6, "words", place)
                words = {self._pick(spec.vocab_size, f"word of {place}", word) for word in range(count)}
                banned = tuple((word,) for word in sorted(words))
                self._change(place, params=params.model_copy(update={"bad_words": banned}))

    def _single_tokens(self) -> None:
        """Let a third of the prompts have one token, in one of two."""
        for place, _ in self._submits() if self._one_in(2, "single tokens") else ():
            if not self._pick(3, "single token", place):
                self._lengthen(place, 1)

    def _dummies_beside_states(self) -> None:
        """Leave all requests out of steps in whose place batches of padding alone replay graphs.

        What a state has lost shows many tokens later: outputs are long, and nobody gives them up.
        """
        graphs = ("full_and_piecewise", "full_and_piecewise", "full")[self._pick(3, "graphs of dummies")]
        if "dummy_step" not in self._capabilities.events or not self._capabilities.allows("graphs", graphs):
            return
        self._set(graphs=graphs)
        self._set(max_model_len=max(self.spec.max_model_len, 4 * self.spec.block_size))
        self.events = [event for event in self.events if not isinstance(event, Abort)]
        submits = self._submits()
        names = dict.fromkeys(each.request for _, each in submits)
        for place, _ in submits:
            self._change(place, max_tokens=24 + self._pick(16, "behind dummies", place), stop=())
        for place, submit in submits[: 1 + self._pick(2, "times of dummies")]:
            tick = submit.tick + 3 + self._pick(6, "dummies behind", place)
            for each in range(tick, tick + 3):
                # Also those that come meanwhile.
                self.events += [Stall(tick=each, request=name, ticks=1) for name in names]
                self.events.append(DummyStep(tick=each))
