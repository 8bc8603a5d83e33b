"""Reference rejection sampler: accepted draft tokens, then a recovered or bonus token.

In float64, one token at a time. A draft token was sampled from a draft distribution q; a certain draft token has all of
q. p and q are weights with sums P and Q, so p / P is compared with q / Q as p Q with q P: only the joint ratios
of block verification need a division.

A decision is ambiguous if float32 could decide otherwise. Relative errors of products and quotients are added, with 2
UNIT per factor: one for rounding, one for second-order terms. Errors of differences are added; a difference that is
certainly not above 0 is exactly 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.sampling import SamplingParams
from scenarios.spec import SamplingMethod
from workers.oracle.random_sampling import (
    ACCEPT_STREAM,
    NOTHING,
    SELECT_STREAM,
    UNIT,
    USUAL,
    Cuts,
    Mass,
    Proposal,
    TargetDistribution,
    float32,
    noise,
    pick,
    select,
    target_of,
    total,
)

# Number of tries before the target's residual after a sampled draft token is summed.
NUM_TRIES = 2
CERTAIN = Mass(1.0, 0.0)


@dataclass(frozen=True, slots=True)
class VerifiedTokens:
    """The tokens that a batch row samples, and whether rounding could change them.

    Without a target distribution, no token follows the kept draft tokens. `happened` has the probes for the way a token
    was found after a rejected sampled draft token.
    """

    tokens: tuple[int, ...]
    is_ambiguous: bool
    happened: tuple[str, ...] = ()
    has_target: bool = True


class Draft:
    """A draft token with its target distribution and, if it was sampled, its draft distribution."""

    def __init__(self, token: int, target: TargetDistribution, proposal: Proposal | None = None) -> None:
        self.token, self.target, self.proposal = token, target, proposal
        self._of_target = total(target.masses)
        self._of_draft = total(proposal.masses) if proposal is not None else CERTAIN

    def scaled_probabilities(self, token: int, joint_ratio: Mass = CERTAIN) -> tuple[Mass, Mass]:
        """Return two probabilities of a token: the target's times `joint_ratio`, and the drafter's."""
        if self.proposal is None:
            q = CERTAIN if token == self.token else NOTHING
        else:
            q = self.proposal.masses[token]
        return _product(joint_ratio, self.target.masses[token], self._of_draft), _product(q, self._of_target)

    def residual(self, joint_ratio: Mass) -> list[Mass]:
        """Return the residual max(joint_ratio * p - q, 0) of each token, unnormalised."""
        return [_excess(*self.scaled_probabilities(token, joint_ratio)) for token in range(len(self.target.masses))]

    def residual_sum(self, joint_ratio: Mass) -> Mass:
        """Return the sum of the residual max(joint_ratio * p - q, 0), as a probability."""
        return _product(
            total(self.residual(joint_ratio)), *(_inverse(each) for each in (self._of_target, self._of_draft))
        )


def verify(
    method: SamplingMethod,
    lines: Sequence[Sequence[float]],
    drafts: Sequence[int],
    params: SamplingParams,
    rates: Sequence[float],
    position: int,
    *,
    proposals: Sequence[Proposal] = (),
    cuts: Cuts = USUAL,
) -> VerifiedTokens:
    """Return the tokens that a row emits: accepted drafts, then a recovered or bonus token.

    `lines` has the logits of each draft token's column and of one more; `position` is the position of the first
    column's token. An invalid draft token ends the draft tokens, as does one without a target or draft distribution:
    the next token is sampled from the target there. Sampled draft tokens have `proposals`, one each.
    """
    targets = [target_of(line, params) for line in lines]
    known: list[Draft] = []
    for column, (target, token) in enumerate(zip(targets, drafts, strict=False)):
        if target is None or not 0 <= token < len(target.masses):
            break
        if proposals and not proposals[column].masses:
            break
        known.append(Draft(token, target, proposals[column] if proposals else None))
    # No two verifications use the same random number.
    numbers = [noise(params, position, ACCEPT_STREAM, column)[0] for column in range(len(known))]
    kept, joint_ratio, is_ambiguous = 0, CERTAIN, False
    if method == "block":
        kept, joint_ratio, is_ambiguous = accept_block(known, numbers)
    else:
        for column, draft in enumerate(known):
            if method == "synthetic":
                is_kept, is_close = numbers[column] < float32(rates[column]), False
            elif method == "strict":
                token, is_close = select(draft.target.masses, noise(params, position + column, SELECT_STREAM), cuts)
                is_kept = token == draft.token
            else:
                is_kept, is_close = is_accepted(numbers[column], draft)
            is_ambiguous |= is_close or (method != "synthetic" and draft.target.is_ambiguous)
            if not is_kept:
                break
            kept += 1
    last = targets[kept]
    if last is None:
        return VerifiedTokens(tuple(drafts[:kept]), is_ambiguous and params.temperature > 0, has_target=False)
    happened: tuple[str, ...] = ()
    if kept < len(known) and method in ("standard", "block"):
        token, is_close, happened = sample_recovered(known[kept], joint_ratio, params, position + kept, cuts)
    else:
        token, is_close = select(last.masses, noise(params, position + kept, SELECT_STREAM), cuts)
    is_ambiguous |= is_close or last.is_ambiguous
    return VerifiedTokens((*drafts[:kept], token), is_ambiguous and params.temperature > 0, happened)


def is_accepted(number: float, draft: Draft) -> tuple[bool, bool]:
    """Return whether a random number is below p / q (draft accepted), and if rounding matters."""
    p, q = draft.scaled_probabilities(draft.token)
    is_close = p != NOTHING and abs(number * q.value - p.value) <= p.error + number * (q.error + UNIT * q.value)
    return number * q.value < p.value, is_close


def accept_block(drafts: Sequence[Draft], numbers: Sequence[float]) -> tuple[int, Mass, bool]:
    """Return how many drafts block verification accepts, their joint ratio, if rounding matters.

    The joint ratio of a run of draft tokens is min(1, joint ratio of all but the last * p / q). The residual after the
    run is the part of joint_ratio * p above q at the next draft token. Source: arXiv 2403.10444.
    """
    joint_ratio, kept, joint_ratio_kept, is_ambiguous = CERTAIN, 0, CERTAIN, False
    for column, draft in enumerate(drafts):
        joint_ratio = _capped_ratio(*draft.scaled_probabilities(draft.token, joint_ratio))
        if column + 1 == len(drafts):
            bound, limit, error = joint_ratio, 1.0, joint_ratio.error
        else:
            bound = drafts[column + 1].residual_sum(joint_ratio)
            limit = bound.value + 1 - joint_ratio.value
            error = (1 + numbers[column]) * bound.error + numbers[column] * joint_ratio.error + 8 * UNIT
        is_close = bound != NOTHING and abs(numbers[column] * limit - bound.value) <= error
        if numbers[column] * limit < bound.value:
            kept, joint_ratio_kept = column + 1, joint_ratio
            # If this many draft tokens are certainly kept, smaller numbers do not matter.
            is_ambiguous = is_close
        else:
            is_ambiguous |= is_close
    return kept, joint_ratio_kept, is_ambiguous or any(draft.target.is_ambiguous for draft in drafts)


def sample_recovered(
    draft: Draft, joint_ratio: Mass, params: SamplingParams, position: int, cuts: Cuts
) -> tuple[int, bool, tuple[str, ...]]:
    """Sample the recovered token after a rejected draft; return it with ambiguity and probes.

    The residual of a certain draft token is every other token. For a sampled draft token it is the part of p above q: a
    token sampled from p is kept with probability residual / p, and after NUM_TRIES the residual is summed.
    """
    target, is_ambiguous = draft.target, False
    if draft.proposal is None:
        return *select(target.without(draft.token), noise(params, position, SELECT_STREAM), cuts), ()
    tried = []
    for index in range(NUM_TRIES):
        numbers = noise(params, position, SELECT_STREAM, index)
        token, is_close = select(target.masses, numbers, cuts)
        tried.append(token)
        p, q = draft.scaled_probabilities(token, joint_ratio)
        residual, number = p.value - q.value, numbers[3]
        error = (1 + number) * p.error + q.error + 2 * UNIT * (p.value + q.value)
        is_ambiguous |= is_close or abs(number * p.value - residual) <= error
        if number * p.value < residual:
            return token, is_ambiguous, ("recovered_by_a_try",)
    rest = draft.residual(joint_ratio)
    if not any(mass.value > 0 for mass in rest):
        # The draft token was rejected by rounding alone.
        return tried[0], True, ()
    token, is_close = _select_by_tiles(rest, noise(params, position, SELECT_STREAM, NUM_TRIES), cuts)
    return token, is_ambiguous or is_close, ("recovered_from_the_rest",)


def _select_by_tiles(masses: Sequence[Mass], numbers: Sequence[float], cuts: Cuts) -> tuple[int, bool]:
    """Sample a token in the order of a parallel sampler: tile, then lane in it, then block."""
    size, tokens, is_ambiguous = cuts.block_size(len(masses)), list(range(len(masses))), False
    cells = {token: (token // size, token % size // cuts.tile, token % cuts.tile) for token in tokens}
    for level in (1, 2, 0):
        groups: dict[int, list[int]] = {}
        for token in tokens:
            groups.setdefault(cells[token][level], []).append(token)
        if len(groups) > 1:
            parts = [groups[key] for key in sorted(groups)]
            found, is_close = pick([total([masses[token] for token in part]) for part in parts], numbers[level])
            tokens, is_ambiguous = parts[found], is_ambiguous or is_close
    return tokens[0], is_ambiguous


def _product(*factors: Mass) -> Mass:
    value, off = 1.0, 0.0
    for each, error in factors:
        if each == 0:
            return NOTHING
        value *= each
        off += error / each + 2 * UNIT
    return Mass(value, value * off) if value > 0 else NOTHING


def _inverse(mass: Mass) -> Mass:
    # A quotient has a relative error of up to 4 UNIT on a GPU.
    return Mass(1 / mass.value, (_off(mass) + 4 * UNIT) / mass.value)


def _excess(p: Mass, q: Mass) -> Mass:
    """Return max(p - q, 0); exactly 0 if rounding errors cannot make it positive."""
    value, error = p.value - q.value, p.error + q.error + UNIT * (p.value + q.value)
    return Mass(max(value, 0.0), error) if p != NOTHING and value > -error else NOTHING


def _capped_ratio(p: Mass, q: Mass) -> Mass:
    """Return min(1, p / q); exactly 1 if rounding errors cannot make it smaller."""
    if q == NOTHING:
        return CERTAIN if p != NOTHING else NOTHING
    quotient = _product(p, _inverse(q))
    return CERTAIN if quotient.value - quotient.error > 1 else Mass(min(quotient.value, 1.0), quotient.error)


def _off(mass: Mass) -> float:
    return mass.error / mass.value if mass.value > 0 else 0.0
