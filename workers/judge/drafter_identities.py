"""Identities of a drafter's passes: what its model is given, and what its cache holds, whatever the model.

Verifies: in the first pass of a step that a request's tokens are those known of it, up to the one just sampled, each
at its position, or at that of the token before it; in every further pass the draft proposed last, one position on; of
a drafter that proposes all drafts at once, that it keeps all that was computed, and is given the token just sampled and
a mask for each draft; slots and lengths that follow from these and from the blocks planned; bounds of the lengths that
are bounds; that no row, whatever it is for, is written into a block that its request does not hold; that each entry a
request attends to was written for that position and that token, by the request itself but for a prefix that it found,
in the cache or in a store beside it;
that the drafts which the target verifies next are those proposed; that the drafter runs in every step but beside a
request that is about to reach the longest length, and but where one that proposes all at once proposes nothing, keeps
its entries, and none is verified.
Does not verify: hidden states; rows of rejected drafts, and what lies behind the longest length, but for where they are
written; drafts of a prompt's chunk, which nobody verifies; tokens of a request of whose earlier stay a result may come.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from workers.judge.broken_identities import broken
from workers.judge.drafter_steps import Known, Proposal, Row, Step, Written
from workers.judge.judge import End, Judge
from workers.record.evidence import Difference, Fact, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANE = "drafts"
PLANES = (PLANE,)


class DrafterIdentities(Judge):
    """Judge of a drafter's passes in one run, in the order in which they were made.

    `proposals` are those that follow from tokens alone, of the steps judged so far.
    """

    sees = ("log",)

    def __init__(self) -> None:
        self._block_size, self._length_max, self._shift = 0, 0, 0
        self._chunk_ends_known = True
        self._drafts_max = 0
        # What a drafter that proposes all drafts at once is given for each.
        self._mask: int | None = None
        self._steps: dict[int, Step] = {}
        self._known: dict[int, Known] = {}
        self.proposals: dict[tuple[int, int], Proposal] = {}
        # Entries in front of another token: at ends of found blocks that another request wrote, or of one that changed.
        self._found: list[Difference] = []
        # The drafter's cache by slot, and what a store keeps of it.
        self._cache: dict[int, Written] = {}
        self._store: dict[int, Written] = {}
        # What later passes write behind a step.
        self._late: dict[int, dict[int, Written]] = {}
        # Copies from and to the store by step, in front of its passes and behind them.
        self._copies: dict[tuple[int, bool], list[Observation]] = {}

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            match seen.point:
                case "opened":
                    self._block_size, self._shift = seen.values["block_size"], seen.values["draft_shift"]
                    self._length_max = seen.values["max_model_len"]
                    self._chunk_ends_known, self._mask = seen.values["chunk_ends_known"], seen.values["mask_token"]
                    self._drafts_max = seen.values["drafts_max"]
                case "scheduled":
                    self._steps[seen.step] = Step(seen)
                case "inputs":
                    self._steps[seen.step].inputs = seen
                case "context":
                    self._steps[seen.step].context = seen
                case "drafting":
                    assert seen.values["index"] == len(self._steps[seen.step].passes), "a pass is not shown"
                    self._steps[seen.step].passes.append(seen)
                case "margins":
                    self._steps[seen.step].margins.append(seen.values["margins"])
                case "proposed":
                    self._steps[seen.step].proposed = dict(zip(seen.requests, seen.values["proposed"], strict=True))
                case "transfer" if seen.values["phase"] == "copies":
                    is_waited_for = seen.values["of"] == "load" and seen.values["is_synchronous"]
                    is_ahead = is_waited_for or seen.step < 0 or self._steps[seen.step].inputs is None
                    self._copies.setdefault((seen.step, is_ahead), []).append(seen)
                case "processed":
                    self._steps[seen.step].sampled = dict(zip(seen.requests, seen.values["sampled"], strict=True))

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if any(step.passes for step in self._steps.values()) else ()

    def at_end(self, end: End) -> Difference | None:
        if not self.planes:
            return None
        for number in sorted(self._steps):
            self._copy(number, is_ahead=True)
            found = next(self._of_step(number, self._steps[number]), None)
            if found is not None:
                return found
            self._cache |= self._late.pop(number, {})
            self._copy(number, is_ahead=False)
        # Whatever else is wrong comes first.
        return next(iter(self._found), None)

    def _copy(self, number: int, is_ahead: bool) -> None:
        """Copy blocks between the cache and the store, less those that are lost."""
        size = self._block_size
        for seen in self._copies.get((number, is_ahead), ()):
            is_load = seen.values["of"] == "load"
            source, target = (self._store, self._cache) if is_load else (self._cache, self._store)
            for index, pair in enumerate(zip(seen.values["slots"], seen.values["blocks"], strict=True)):
                at, to = pair if is_load else reversed(pair)
                for place in range(size) if index not in seen.values["lost"] else ():
                    target.pop(to * size + place, None)
                    if at * size + place in source:
                        target[to * size + place] = source[at * size + place]

    def _of_step(self, number: int, step: Step) -> Iterator[Difference]:
        values = step.planned.values
        for request, tokens in values["begun"]:
            before = self._known.get(request)
            hit = values["scheduled_computed"][step.planned.requests.index(request)]
            is_followed = before is None or len(before.tokens) <= len(tokens)
            self._known[request] = Known(list(tokens), hit, is_followed, is_whole=not hit)
            if before is not None:
                unlike = (at for at, pair in enumerate(zip(before.tokens, tokens, strict=False)) if pair[0] != pair[1])
                self._known[request].changed = next(unlike, None)
        for request, count in values.get("shared", ()):
            self._known[request].hit = max(self._known[request].hit, count)
        if step.inputs is not None:
            if values["follows"]:
                yield from self._verified(number, step.inputs)
            for request in step.inputs.requests:
                self._known[request].tokens += step.sampled.get(request, [])
                self._known[request].last = number
            rows = {row.request: row for row in self._rows(step, step.inputs)}
            yield from self._are_shown(number, step, rows)
            if step.context is not None:
                yield from self._keeps(number, step.context, step.inputs, rows)
            for seen in step.passes:
                yield from self._pass(number, seen, rows)
            if not step.passes and step.context is None:
                self._miss(rows.values())
            self._note(number, step, rows)

    def _verified(self, number: int, inputs: Observation) -> Iterator[Difference]:
        """Yield drafts that the target is given and that are not those proposed in the step before."""
        values = inputs.values
        for row, request in enumerate(inputs.requests):
            known, stop, count = self._known[request], values["starts"][row + 1], values["drafts"][row]
            proposed = self._steps[number - 1].proposed.get(request) if known.last == number - 1 >= 0 else None
            if proposed is None or not known.is_followed:
                continue
            given = values["input_ids"][stop - count : stop]
            for index, (token, draft) in enumerate(zip(given, proposed, strict=False)):
                if token != draft:
                    where = number, values["positions"][stop - count + index]
                    yield broken(PLANE, "verified", request, where, draft, token)

    def _rows(self, step: Step, inputs: Observation) -> Iterator[Row]:
        values, blocks = inputs.values, dict(step.planned.values["blocks"])
        for row, (request, start, stop) in enumerate(
            zip(inputs.requests, values["starts"], values["starts"][1:], strict=False)
        ):
            known, drafts, sampled = self._known[request], values["drafts"][row], step.sampled.get(request, [])
            first, count = values["positions"][start], stop - start
            end = first + count - (drafts + 1 - len(sampled) if drafts else 0)
            goes_on = bool(sampled)
            tokens = known.tokens + step.proposed.get(request, []) if goes_on else known.tokens
            is_open = known.is_followed and (goes_on or not drafts)
            yield Row(
                request=request,
                first=first,
                num_scheduled=count,
                end=end,
                tokens=list(tokens),
                blocks=blocks.get(request, []),
                goes_on=goes_on,
                is_chunk=not goes_on and not drafts,
                is_open=is_open,
            )

    def _are_shown(self, number: int, step: Step, rows: Mapping[int, Row]) -> Iterator[Difference]:
        """Yield a step without a pass of the drafter though no request in it is about to reach the longest length."""
        planned = zip(step.planned.requests, step.planned.values["scheduled_computed"], strict=True)
        longest = max(computed + rows[request].num_scheduled for request, computed in planned)
        # Room is kept for the most drafts, however few are asked for.
        is_near = longest + self._drafts_max + 1 > self._length_max
        if not step.passes and not is_near and not self._proposes_none(number, step):
            yield broken(PLANE, "passes", None, (number, None), fact("inputs_of_every_step"), fact("none_shown"))

    def _proposes_none(self, number: int, step: Step) -> bool:
        """Tell whether a step proposes nothing and keeps what it computed, and none of its requests has drafts next."""
        following = self._steps.get(number + 1)
        behind = following.inputs if following is not None else None
        drafts = dict(zip(behind.requests, behind.values["drafts"], strict=True)) if behind is not None else {}
        is_asked = any(drafts.get(request) for request in step.planned.requests)
        return step.context is not None and not any(step.proposed.values()) and not is_asked

    def _miss(self, rows: Iterable[Row]) -> None:
        """Note the entries that were due in a step without a pass: its positions are never computed again."""
        for row in rows:
            self._known[row.request].is_whole = False
            for position in range(row.first, row.end):
                slot = self._slot(row, position)
                if isinstance(slot, int):
                    self._cache[slot] = Written(row.request, position, None)

    def _note(self, number: int, step: Step, rows: Mapping[int, Row]) -> None:
        """Note the step's proposals, as far as they follow from tokens alone."""
        for place, request in enumerate(step.passes[0].requests if step.passes else ()):
            row, known, drafts = rows[request], self._known[request], step.proposed.get(request, [])
            if not self._chunk_ends_known and self._shift and not row.goes_on:
                known.is_whole = False
            if not (row.is_open and row.goes_on and known.is_whole and drafts):
                continue
            count = len(drafts)
            one_each = [margins[place] for margins in step.margins[:count]]
            of_all = step.margins[0][place * count : (place + 1) * count] if step.margins else []
            at_once = self._mask is not None
            margins = tuple(of_all if at_once else one_each)
            proposal = Proposal(number, tuple(known.tokens), tuple(drafts), margins, at_once)
            self.proposals[request, len(known.tokens)] = proposal

    def _keeps(
        self, number: int, seen: Observation, inputs: Observation, rows: Mapping[int, Row]
    ) -> Iterator[Difference]:
        """Yield wrong positions and slots of what a drafter that proposes all at once keeps of the target's states."""
        starts = inputs.values["starts"]
        for request, start, stop in zip(inputs.requests, starts, starts[1:], strict=False):
            row = rows[request]
            given = {name: seen.values[name][start:stop] for name in ("positions", "slots")}
            if row.is_open:
                yield from self._places(number, row, row.first, row.end - row.first, given)
            tokens = [*row.tokens[row.first : row.end], *[-1] * (stop - start)][: stop - start]
            yield from self._writes(number, row, given | {"input_ids": tokens}, self._cache)

    def _pass(self, number: int, seen: Observation, rows: Mapping[int, Row]) -> Iterator[Difference]:
        values, index = seen.values, seen.values["index"]
        starts = zip(seen.requests, values["starts"], values["starts"][1:], strict=False)
        held, late = dict(values.get("blocks", ())), values.get("behind", -1)
        written = self._late.setdefault(late, {}) if late > number else self._cache
        for place, (request, start, stop) in enumerate(starts):
            row = rows[request]
            if request in held:
                row = row._replace(blocks=held[request])
                yield from self._attends(number, row, values["tables"][place])
            given = {name: values[name][start:stop] for name in ("input_ids", "positions", "slots")}
            if row.is_open:
                yield from self._given(number, row, index, given, values["seq_lens"][place])
            for bound in values["bounds"][place : place + 1]:
                yield from self._bounds(number, row, bound, values["seq_lens"][place])
            yield from self._writes(number, row, given, written)
        for request in seen.requests if index == 0 else ():
            if rows[request].is_open:
                yield from self._reads(number, rows[request])

    def _given(
        self, number: int, row: Row, index: int, given: Mapping[str, list[int]], length: int
    ) -> Iterator[Difference]:
        """Yield wrong tokens, positions, slots and length of a row in a pass."""
        if self._mask is not None:
            first, last = row.end, row.end + len(given["positions"]) - 1
        else:
            # The row of a chunk's next token, at its own position, is computed again by the next chunk.
            first, last = row.first if index == 0 else row.end - self._shift + index, self._last(row) + index
        count = min(last, self._length_max - 1) + 1 - first
        yield from self._places(number, row, first, count, given)
        for position, token in zip(range(first, first + count), given["input_ids"], strict=False):
            due = self._mask if self._mask is not None and position > row.end else self._token(row, position)
            is_told = row.goes_on or (index == 0 and self._mask is None)
            if is_told and due is not None and token != due:
                yield broken(PLANE, "draft_input_ids", row.request, (number, position), due, token)
        if count <= 0:
            # It lies behind the longest length.
            return
        covered = min(first + len(given["positions"]), self._length_max)
        if length != covered:
            yield broken(PLANE, "draft_seq_lens", row.request, (number, None), covered, length)

    def _bounds(self, number: int, row: Row, bound: int, length: int) -> Iterator[Difference]:
        """Yield a bound of a row's length, as the host has it, that the length on the device is above."""
        if bound < length:
            yield broken(PLANE, "draft_bounds", row.request, (number, None), fact("at_least", least=length), bound)

    def _attends(self, number: int, row: Row, table: list[int]) -> Iterator[Difference]:
        """Yield blocks that a later pass attends to and that are not those of its request."""
        for index, pair in enumerate(zip(row.blocks, table, strict=False)):
            due, there = (fact("block", block=block) for block in pair)
            if due != there:
                yield broken(PLANE, "draft_tables", row.request, (number, index * self._block_size), due, there)

    def _places(
        self, number: int, row: Row, first: int, count: int, given: Mapping[str, list[int]]
    ) -> Iterator[Difference]:
        """Yield positions that do not go on from the first, and slots that are not those of the blocks planned."""
        for place, position in enumerate(range(first, first + count)):
            where, slot = (number, position), given["slots"][place]
            if given["positions"][place] != position:
                yield broken(PLANE, "draft_positions", row.request, where, position, given["positions"][place])
            if slot != (own := self._slot(row, position)):
                yield broken(PLANE, "draft_slots", row.request, where, own, slot)

    def _last(self, row: Row) -> int:
        """Return the last position of a row in the first pass: that of the token just sampled, or before it."""
        return row.end - self._shift if row.goes_on else row.end - 1

    def _token(self, row: Row, position: int) -> int | None:
        """Return the token that a row is to be given at a position, if it is known."""
        if self._is_chunk_end(row, position):
            return row.tokens[-1]
        at = position + self._shift
        return row.tokens[at] if at < len(row.tokens) else None

    def _is_chunk_end(self, row: Row, position: int) -> bool:
        """Tell whether the token behind a position is the next of a chunk, and a later one is given for it."""
        is_end = position == row.end - 1 and self._shift > 0 and row.is_chunk
        return is_end and row.end < len(row.tokens) and not self._chunk_ends_known

    def _slot(self, row: Row, position: int) -> int | Fact:
        block = position // self._block_size
        if block >= len(row.blocks):
            return fact("own_block", index=block)
        return row.blocks[block] * self._block_size + position % self._block_size

    def _writes(
        self, number: int, row: Row, given: Mapping[str, list[int]], written: dict[int, Written]
    ) -> Iterator[Difference]:
        """Keep what a row writes in `written`; yield slots of blocks that its request does not hold."""
        for token, position, slot in zip(given["input_ids"], given["positions"], given["slots"], strict=True):
            if slot < 0:
                continue
            block = slot // self._block_size
            if block not in row.blocks:
                due, where = fact("a_block_of_its_own"), (number, position)
                yield broken(PLANE, "draft_slots", row.request, where, due, fact("block", block=block))
            # What is given at the end of a chunk stands for the next token, in whichever stay.
            meant = row.tokens[position + self._shift] if self._is_chunk_end(row, position) else token
            written[slot] = Written(row.request, position, meant)

    def _reads(self, number: int, row: Row) -> Iterator[Difference]:
        """Yield entries that a request attends to in the first pass and that were not written for it."""
        hit, told = self._known[row.request].hit, len(row.tokens) - 1 - self._shift
        for position in range(min(self._last(row), self._length_max - 1, told) + 1):
            slot, token = self._slot(row, position), row.tokens[position + self._shift]
            held = self._cache.get(slot) if isinstance(slot, int) else None
            if held is None:
                there = fact("no_entry")
            elif (
                held.position == position
                and held.token in (token, None)
                and (held.request == row.request or position < hit)
            ):
                continue
            else:
                there = fact("entry_of", token=held.token, position=held.position, request=held.request)
            due = fact("entry_of", token=token, position=position, request=row.request)
            found = broken(PLANE, "draft_cache", row.request, (number, position), due, there)
            is_end = self._shift > 0 and (position + 1) % self._block_size == 0
            # One of the token that a session has dropped.
            is_changed = position + self._shift == self._known[row.request].changed
            if is_changed or (is_end and position < hit and held is not None and held.position == position):
                self._found.append(found)
            else:
                yield found
