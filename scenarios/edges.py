"""Edges: what drawn traces lose in an engine with cache blocks of its own, or lack in one whose drafts are its own.

Random traces are drawn for small blocks, and then rescaled: chunks, lengths and pools that were just large enough are
so no more. Each edge is drawn under labels of its own behind that, and what it needs of an engine is asked of its
capabilities. So a trace is a function of its seed and of these, and an engine that scripts drafts keeps its traces.
"""

from collections.abc import Mapping

from scenarios.batch_edges import CHUNKS_MAX, TURN_AFTER, BatchEdges
from scenarios.capabilities import CONTINUES, Capabilities, within
from scenarios.drafters import TRAITS
from scenarios.events import (
    Abort,
    AnyEvent,
    Continuation,
    Pause,
    Preempt,
    PromptDraw,
    ResetPrefixCache,
    SetK,
    Stall,
)
from scenarios.extensions import extended
from scenarios.own_draws import Draws
from scenarios.sampling import BAD_WORDS_MAX, SamplingParams
from scenarios.session_draws import room_for, with_sessions
from scenarios.spec import INTEGER_MAX
from scenarios.trace import Trace
from scenarios.transfers import with_transfers
from scenarios.window_draws import with_windows

# An engine with graphs is made in twice the time. Traces with a connector lose them again.
GRAPHS_ONE_IN = 6
SESSIONS_ONE_IN = 6
GRAPHS = ("full_and_piecewise", "full_and_piecewise", "full", "piecewise")
RUNS_ONE_IN = 16
# Of traces with drafts in which grammars wait for a token, and of those with words that end a text.
WAITS_ONE_IN = 2
WORDS_ONE_IN = 2
# Where a request cannot be interrupted alone.
PAUSED_ONE_IN = 6
# Of hybrid models without drafts.
DUMMIES_ONE_IN = 3
CLEARED_ONE_IN = 5
INSIDE_ONE_IN = 2
# Of shorter prompts no chunks are made.
CHUNKED_MIN = 6


def drawn_for(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a drawn trace with what an engine has besides, and within what it can do if its drafts are its own."""
    trace = extended(trace, capabilities)
    if capabilities.scripts_drafts:
        return with_transfers(trace, capabilities)
    if capabilities.allowed("block_size") is not None:
        trace = within(trace, capabilities)
    edges = _Edges(trace, capabilities)
    trace = with_windows(within(edges.trace(), capabilities), capabilities)
    is_complete = edges.is_whole or trace.spec.layers == "windows"
    return trace if is_complete else within(with_transfers(trace, capabilities), capabilities)


class _Edges(BatchEdges):
    """One trace with edges."""

    def trace(self) -> Trace:
        """Return the trace, some edges in one of two."""
        own = self._capabilities.own_draws
        if self._one_in(own.undrafted_one_in, "without drafts"):
            self._without_drafts()
        sizes = self._pick(10, "sizes")
        self._sized(sizes, own.sizes)
        if self.is_whole:
            return self._changed()
        if self.spec.recurrent_layers != "short_conv" and not self.spec.num_speculative_tokens:
            self._single_tokens()
        is_plain_hybrid = self.spec.layers == "hybrid" and not self.spec.num_speculative_tokens
        if is_plain_hybrid and self._one_in(DUMMIES_ONE_IN, "dummies"):
            self._dummies_beside_states()
        if self._one_in(4, "chunked"):
            self._in_mid_prompt()
        if self._one_in(3, "decodes first"):
            self._set_if_allowed(decodes_first=True)
            if self.spec.decodes_first and self._one_in(3, "rows change places"):
                self._rows_change_places()
        if self.spec.graphs == "none" and self._one_in(GRAPHS_ONE_IN, "graphs"):
            self._set_if_allowed(graphs=GRAPHS[self._pick(len(GRAPHS), "which graphs")])
        are_logits = self.spec.logprobs_mode.endswith("logits")
        if CONTINUES in self._capabilities.features and (are_logits or self._one_in(5, "turns")):
            self._turns()
        if self.spec.num_speculative_tokens and self.spec.layers == "attention":
            is_at_once = self.spec.drafter == "dflash"
            if self._one_in(2 if is_at_once else RUNS_ONE_IN, "runs at ends"):
                self._set_if_allowed(drafter="dflash", draft_sampling="greedy")
                self._runs_up_to_a_block()
        if self.spec.layers == "hybrid" and self.spec.prefix_cache:
            self._prefixes_of_states()
        elif TRAITS[self.spec.drafter].is_shifted and self.spec.num_speculative_tokens and self._one_in(2, "branches"):
            self._branches()
        if "session" in self._capabilities.features_on(self.spec) and self._one_in(SESSIONS_ONE_IN, "sessions"):
            self._sessions()
        elif self._waits_beside_drafts() and self._one_in(WAITS_ONE_IN, "long waits"):
            self._long_waits()
        elif self._ends_by_words_beside_drafts() and self._one_in(WORDS_ONE_IN, "many words"):
            self._many_words()
        if sizes in own.meetings:
            self._set_if_possible(*own.meetings[sizes](self.spec, self.events, self._pick))
        return self._changed()

    def _sized(self, sizes: int, own: Mapping[int, Draws]) -> None:
        """Choose lengths, and the room for them."""
        match sizes:
            case _ if sizes in own:
                self.spec, self.events = own[sizes](self.spec, self.events, self._pick)
            case 0:
                self._short_chunks()
            case 1:
                self._up_to_the_end()
            case 2 | 3:
                self._tight_pool()
            case 5 if self.spec.num_speculative_tokens > 1 and self.spec.layers == "attention":
                self._behind_hits()
                self.is_whole = True
            case 4:
                self._uneven_chunks()

    def _prefixes_of_states(self) -> None:
        """Let requests of a hybrid model go on from what is cached of others."""
        drafts = self.spec.num_speculative_tokens and TRAITS[self.spec.drafter].caches_drafts
        if not drafts and self._one_in(INSIDE_ONE_IN, "inside blocks"):
            self._hits_inside_blocks()
        elif self._one_in(CLEARED_ONE_IN, "cleared"):
            self._cleared_past_a_block()
        else:
            self._states_at_ends()

    def _short_chunks(self) -> None:
        """Let no chunk be longer than a run of drafts and the token behind them."""
        chunk = 1 + self._pick(1 + self.spec.num_speculative_tokens, "chunk")
        self._set(long_prefill_token_threshold=chunk)
        for place, submit in self._submits():
            self._lengthen(place, min(submit.prompt_length, CHUNKS_MAX * chunk))

    def _up_to_the_end(self) -> None:
        """End the model a run of drafts behind a block, and most prompts about there; cache prefixes in one of two."""
        spec = self.spec
        run = 1 + spec.num_speculative_tokens
        length = spec.block_size * (1 + self._pick(3, "blocks")) + run
        num_blocks = max(spec.num_blocks, -(-length // spec.block_size))
        self._set(max_model_len=length, num_blocks=num_blocks)
        if self._one_in(2, "end cached"):
            self._cache_prefixes()
        for place, submit in self._submits():
            if self._pick(3, "at the end", place):
                tokens = max(1, length - 1 - self._pick(1 + run, "before the end", place))
                self._lengthen(place, tokens, tokens if self.spec.prefix_cache else None)
            else:
                self._lengthen(place, min(length - 1, submit.prompt_length))

    def _tight_pool(self) -> None:
        """Let several requests fit into the pool as they come, and outgrow it; in every other trace with priorities.

        Prompts end a little before a block does, and all outputs pass its end.
        """
        spec, block = self.spec, self.spec.block_size
        blocks = 1 + self._pick(2, "blocks of prompts")
        rows = max(2, spec.max_num_seqs)
        num_blocks = max(2 * blocks, blocks + 1) + self._pick(2, "spare")
        self._set(max_num_seqs=rows, num_blocks=num_blocks, max_model_len=block * (blocks + 1))
        self._set(max_num_batched_tokens=max(spec.max_num_batched_tokens, block))
        is_urgent = self._one_in(2, "urgent")
        if is_urgent:
            self._set_if_allowed(policy="priority")
        submits = self._submits()
        for place, submit in submits:
            tokens = blocks * block - 1 - self._pick(8, "behind the prompt", place)
            self._lengthen(place, tokens)
            # Who comes later goes first, or any of them does.
            priority = self._pick(3, "priority", place) if self._pick(2, "any priority") else len(submits) - place
            self._change(
                place,
                tick=self._pick(4, "together", place) + (TURN_AFTER if submit.tick > TURN_AFTER else 0),
                max_tokens=12 + self._pick(12, "output", place),
                priority=max(0, priority) if is_urgent else submit.priority,
            )

    def _uneven_chunks(self) -> None:
        """Give chunks room for part of a block more, and prompts some blocks and a part in common, in the cache."""
        block, blocks = self.spec.block_size, 5
        chunk = block + 1 + self._pick(max(1, block - 1), "part of a block")
        self._cache_prefixes()
        self._set(
            max_model_len=max(self.spec.max_model_len, block * blocks),
            max_num_batched_tokens=max(chunk, 1 + self.spec.num_speculative_tokens),
            num_blocks=max(self.spec.num_blocks, blocks + self._pick(blocks, "spare blocks")),
        )
        for place, _ in self._submits():
            common = block * (1 + self._pick(3, "common blocks", place)) + self._pick(block, "common part", place)
            self._lengthen(place, min(common + 1 + self._pick(block, "own", place), block * blocks - 1), common)

    def _in_mid_prompt(self) -> None:
        """Interrupt requests while their prompts are computed, chunk by chunk."""
        submits = self._submits()
        longest = max((submit.prompt_length for _, submit in submits), default=0)
        if longest < CHUNKED_MIN:
            return
        if not self.spec.long_prefill_token_threshold:
            self._set(long_prefill_token_threshold=max(2, longest // (2 + self._pick(4, "parts"))))
        for place, submit in submits:
            # Shorter ones are computed at once.
            if 2 * submit.prompt_length > longest and self._pick(3, "interrupted", place):
                tick, name = submit.tick + 1 + self._pick(3, "chunks", place), submit.request
                self.events += self._interruption(place, tick, name)

    def _interruption(self, place: int, tick: int, name: str) -> list[AnyEvent]:
        found: list[AnyEvent] = [
            Preempt(tick=tick, request=name),
            Stall(tick=tick, request=name, ticks=1 + self._pick(4, "ticks", place)),
            ResetPrefixCache(tick=tick, running=True),
            Abort(tick=tick, at="before_process", request=name),
        ]
        chosen = found[(0, 0, 1, 1, 2, 3)[self._pick(6, "interruption", place)]]
        if chosen.do not in self._capabilities.events and self._one_in(PAUSED_ONE_IN, "paused", place):
            chosen = Pause(tick=tick, mode="keep", ticks=1 + self._pick(4, "ticks", place))
        return [chosen] if chosen.do in self._capabilities.events else []

    def _states_at_ends(self) -> None:
        """Let steps pass ends of blocks, where states are kept: by prompts of several in one of two, by drafts in all.

        The number of drafts falls there, and rises again; or the request waits.
        """
        block, k = self.spec.block_size, self.spec.num_speculative_tokens
        if self._one_in(2, "whole blocks"):
            most = max(self.spec.max_num_batched_tokens, block * (2 + self._pick(3, "blocks of a step")))
            self._set(max_num_batched_tokens=most, long_prefill_token_threshold=0)
        if not k:
            return
        most = min(self.spec.max_num_batched_tokens, self.spec.long_prefill_token_threshold or INTEGER_MAX)
        for place, submit in self._submits():
            tokens = block * (1 + self._pick(2, "whole", place)) - 1 - self._pick(2 + 2 * k, "short of a block", place)
            if tokens < 1 or tokens + submit.max_tokens > self.spec.max_model_len:
                continue
            self._lengthen(place, tokens)
            tick = submit.tick + -(-tokens // most) + self._pick(6, "at an end", place)
            if self._pick(2, "waits", place):
                self.events += [
                    SetK(tick=tick, k=self._pick(k, "fewer", place)),
                    SetK(tick=tick + 1 + self._pick(3, "again", place), k=k),
                ]
            else:
                self.events.append(Stall(tick=tick, request=submit.request, ticks=1 + self._pick(2, "for", place)))

    def _hits_inside_blocks(self) -> None:
        """Let hits end inside a block: prompts are beginnings of one, most of them, or have one in common."""
        self._set_if_allowed(match_tokens=self.spec.block_size >> (1 + self._pick(2, "match")))
        for place, submit in self._submits():
            tokens = 1 + self._pick(3 * self.spec.block_size, "beginning", place)
            common = tokens if self._pick(3, "whole", place) else 1 + self._pick(tokens, "common", place)
            if tokens + submit.max_tokens <= self.spec.max_model_len:
                self.events[place] = submit.model_copy(update={"prompt": PromptDraw(tokens=tokens, common=common)})

    def _cleared_past_a_block(self) -> None:
        """Forget states while a request runs that has passed the end of a block since its prompt ended.

        It is computed again in steps that leave no state at the end of its prompt, where others would go on.
        """
        block = self.spec.block_size
        self._without_drafts()
        self._set(
            max_model_len=max(self.spec.max_model_len, 4 * block),
            max_num_batched_tokens=max(self.spec.max_num_batched_tokens, 3 * block),
            long_prefill_token_threshold=0,
        )
        for place, submit in self._submits()[:2]:
            tokens = 2 * block - 1 - self._pick(block - 2, "short of two blocks", place)
            past = 2 * block + 2 - tokens + self._pick(4, "past two blocks", place)
            self._lengthen(place, tokens)
            self._change(place, max_tokens=past + 4 + self._pick(8, "behind", place), stop=())
            self.events.append(
                ResetPrefixCache(tick=submit.tick + past + self._pick(3, "cleared", place), running=True)
            )

    def _runs_up_to_a_block(self) -> None:
        """End most prompts where a block is filled up by the drafts behind them, or by one token more or less."""
        block, k = self.spec.block_size, self.spec.num_speculative_tokens
        for place, submit in self._submits():
            tokens = block * -(-submit.prompt_length // block) - k
            tokens += (0, 0, 0, 1, -1)[self._pick(5, "next to a run", place)]
            if tokens > 0 and tokens + submit.max_tokens <= self.spec.max_model_len:
                self._lengthen(place, tokens)

    def _branches(self) -> None:
        """Let prompts part behind whole blocks that they have in common, in the prefix cache."""
        self._cache_prefixes()
        if not self.spec.prefix_cache:
            return
        for place, submit in self._submits():
            common = self.spec.block_size * (1 + self._pick(2, "common", place))
            tokens = common + 1 + self._pick(6, "own of a branch", place)
            if tokens + submit.max_tokens <= self.spec.max_model_len:
                self._lengthen(place, tokens, common)
                self._change(place, tick=submit.tick + self._pick(TURN_AFTER, "later branch", place))

    def _sessions(self) -> None:
        """Let requests be sessions, with a prefix cache in one of two, without drafts in one of three, with room."""
        if self._one_in(3, "sessions without drafts"):
            self._without_drafts()
        if self._one_in(2, "sessions cached"):
            self._cache_prefixes()
        spec = room_for(self.spec)
        if self._pick(3, "parts in chunks"):
            least = 1 + 2 * spec.num_speculative_tokens
            spec = spec.model_copy(update={"max_num_batched_tokens": least + self._pick(16, "chunk of a part")})
        events = with_sessions(spec, self.events, self._pick)
        self._set_if_possible(room_for(spec, events), events)

    def _waits_beside_drafts(self) -> bool:
        """Tell whether grammars wait for a token that may come in the midst of accepted drafts."""
        spec = self.spec
        return spec.reasoning_end is not None and spec.num_speculative_tokens > 1 and spec.layers == "attention"

    def _long_waits(self) -> None:
        """Let grammars wait for a token that comes among accepted drafts: of few prompts, and outputs that are long.

        Behind it tokens take turns by their remainders, so that one which a grammar misses shows in the next.
        """
        self._set_if_allowed(drafter="draft_model", drafter_quality="good", draft_sampling="greedy")
        tokens = range(self.spec.vocab_size)
        for place, submit in self._submits():
            if not self._pick(4, "no grammar that waits", place):
                continue
            turns = 2 + self._pick(3, "turns of a grammar", place)
            states = [(tokens[turn::turns], (turn + 1) % turns) for turn in range(turns)]
            grammar = tuple(tuple((token, to) for token in allowed) for allowed, to in states)
            params = SamplingParams(grammar=grammar, num_logprobs=submit.params.num_logprobs)
            self._lengthen(place, 1 + self._pick(8, "prompt that waits", place), 0)
            self._change(place, params=params, stop=(), max_tokens=32 + self._pick(16, "wait", place))
        longest = max((each.prompt_length + each.max_tokens for _, each in self._submits()), default=0)
        self._set(
            max_model_len=max(self.spec.max_model_len, longest),
            num_blocks=max(self.spec.num_blocks, -(-longest // self.spec.block_size)),
        )

    def _ends_by_words_beside_drafts(self) -> bool:
        """Tell whether texts end by words of which several may be complete among accepted drafts."""
        is_drafted = self.spec.num_speculative_tokens > 1 and self.spec.layers == "attention"
        return is_drafted and any(submit.params.stop_words for _, submit in self._submits())

    def _many_words(self) -> None:
        """End most texts by any of many words of a token, so that several are complete in a run of accepted drafts."""
        self._set_if_allowed(drafter="draft_model", drafter_quality="good", draft_sampling="greedy")
        for place, submit in self._submits():
            if self._pick(4, "other words", place):
                tokens = [
                    self._pick(self.spec.vocab_size, f"word in a run of {place}", word) for word in range(BAD_WORDS_MAX)
                ]
                words = tuple((token,) for token in dict.fromkeys(tokens))
                params = SamplingParams(stop_words=words, num_logprobs=submit.params.num_logprobs)
                self._change(place, params=params, stop=())

    def _turns(self) -> None:
        """Go on from requests when these have mostly ended; in every other trace from the prefix cache.

        In one of three of these it has been emptied in between.
        """
        if self._one_in(2, "turns cached"):
            self._cache_prefixes()
        submits = self._submits()
        for number in range(1 + self._pick(3, "turns", 1) if submits else 0):
            _, before = submits[self._pick(len(submits), "before", number)]
            tick = before.tick + 4 + self._pick(TURN_AFTER, "after", number)
            turn = Continuation(continues=before.request, tokens=1 + self._pick(8, "own", number))
            name, count = f"turn{number}", 2 + self._pick(10, "tokens", number)
            self.events.append(
                before.model_copy(update={"tick": tick, "request": name, "prompt": turn, "max_tokens": count})
            )
            if self._one_in(3, "emptied", number) and "reset_prefix_cache" in self._capabilities.events:
                self.events.append(ResetPrefixCache(tick=max(0, tick - 1)))
