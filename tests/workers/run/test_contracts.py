"""Contracts in runs: kept by correct engines, and each broken contract is found by name.

What is planted is the same in the asynchronous engine, in the synchronous one and for each request alone: comparing
outputs shows nothing of it.
"""

from dataclasses import replace
from functools import cache

import pytest

from scenarios.codec import loads
from scenarios.events import Abort, AnyEvent, Submit
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.sampling import Output, SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SHIFTED, SamplerBoxKind
from workers.judge.contracts.breach import PLANE
from workers.judge.contracts.judge import CONTRACTS
from workers.judge.outputs import compare
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference
from workers.record.rules import Reference
from workers.record.verdict import Agreed, Diverged, plane
from workers.record.words import finding_lines
from workers.run.check import check
from workers.run.comparison import outputs_of
from workers.run.engine_run import Options, Run
from workers.run.references import one_by_one, synchronous
from workers.shrink.fingerprint import signature_of
from workers.targets.specstorm import Specstorm, SpecstormTarget

VALUE_CACHE = ModelValueCache()
SOUND = SamplerBoxKind()
# In the trace of seed 3 a stop token is also the last allowed token: if it is missed, only the reason is wrong.
SEEDS = range(4, 10)
# Contracts about a value that the tiny engine does not return.
UNDELIVERED = {name for name, default in Output._field_defaults.items() if default is None}
# A request for each contract, because random traces break some of them rarely or never.
REQUESTS: dict[str, dict[str, object]] = {
    "plain": {"num_logprobs": 4, "num_prompt_logprobs": 3},
    "masked": {"stop": (7, 8), "min_tokens": 9, "bad_words": ((5,), (4, 4)), "num_logprobs": 3},
    "named": {"logprob_tokens": (7, 2, 9)},
    "few": {"allowed_tokens": (0, 1, 9)},
    "follows": {"grammar": (((2, 0), (3, 1)), ((4, 0), (5, 2)), ())},
    "penalised": {"presence_penalty": 2.0, "frequency_penalty": 1.0, "num_logprobs": 6},
    "drawn": {"temperature": 8.0, "top_k": 2, "num_logprobs": 6, "seed": 3},
    "near": {"temperature": 1.0, "min_p": 0.875, "num_logprobs": 6, "seed": 5},
    "likely": {"temperature": 1.0, "top_p": 0.125, "num_logprobs": 6, "seed": 4},
    "biased": {"logit_bias": ((9, -100.0), (10, 100.0), (11, 100.0), (3, 7.0)), "allowed_tokens": (3, 9, 10)},
    "stops": {"stop": (0, 2, 4, 6)},
    "given_up": {},
    "spoken": {"stop_words": ((1,), (3,), (5,), (7, 7), (9,)), "min_tokens": 1},
    "varied": {"no_repeats": True, "logit_bias": ((4, 90.0),)},
    "broken": {"broken_grammar": True},
}


def everything(depth: int) -> Trace:
    """Return a trace with all these requests, an abort, and a reused name."""
    spec = EngineSpec(vocab_size=12, max_model_len=40, depth=depth)
    events: list[AnyEvent] = [
        Submit(
            tick=index // 2,
            request=name,
            prompt=(index % spec.vocab_size, 3),
            max_tokens=20,
            stop=asked.get("stop", ()),  # type: ignore[arg-type]
            params=SamplingParams.model_validate({key: value for key, value in asked.items() if key != "stop"}),
        )
        for index, (name, asked) in enumerate(REQUESTS.items())
    ]
    events.append(Abort(tick=12, request="given_up"))
    events.append(Submit(tick=30, request="plain", prompt=(3, 4), max_tokens=3))
    events.append(Submit(tick=21, request=SHIFTED, prompt=(0, 3), max_tokens=3, params=SamplingParams(num_logprobs=4)))
    return Trace(spec=spec, events=tuple(events)).explicit()


@cache
def traces() -> tuple[Trace, ...]:
    """Return traces fitted to the tiny engine, first those with all requests."""
    drawn = [fitted_to(random_trace(seed), SOUND.capabilities).explicit() for seed in SEEDS]
    return (everything(2), everything(1), *drawn)


@cache
def traces_for(contract: str) -> tuple[Trace, ...]:
    """Return the traces for a contract; with logits if the contract is about logits."""
    if contract != "same_context":
        return traces()
    specs = [each.spec.model_copy(update={"logprobs_mode": "raw_logits"}) for each in traces()]
    return tuple(each.model_copy(update={"spec": spec}) for each, spec in zip(traces(), specs, strict=True))


def found_in(trace: Trace, breach: str) -> Difference | None:
    verdict = check(trace, VALUE_CACHE, kind=SamplerBoxKind(breach))
    assert isinstance(verdict, Agreed | Diverged), verdict
    return verdict.difference if isinstance(verdict, Diverged) else None


class BlackBoxOfOurs(Specstorm):
    """Our own engine, reduced to an engine that reports only outputs."""

    capabilities = replace(Specstorm.capabilities, logs_decisions=False, planes=())


def test_correct_output_engine_keeps_every_contract() -> None:
    drawn = [*traces(), *traces_for("same_context")]
    assert drawn
    for trace in drawn:
        verdict = check(trace, VALUE_CACHE, kind=SOUND)
        assert isinstance(verdict, Agreed)
        assert PLANE in verdict.stats.planes


@pytest.mark.parametrize("contract", [contract for contract in CONTRACTS if contract not in UNDELIVERED])
def test_broken_contract_is_found_by_its_name_only(contract: str) -> None:
    found = [found_in(trace, contract) for trace in traces_for(contract)]
    assert found[0] is not None
    # Without a step in flight no result can arrive after an abort.
    assert (found[1] is None) is (contract == "abort")
    assert {(each.plane, each.variable) for each in found if each is not None} == {(PLANE, contract)}


SEEN_BY_OUTPUTS = ("abort", "answer", "name")


@pytest.mark.parametrize("contract", [contract for contract in CONTRACTS if contract not in SEEN_BY_OUTPUTS])
def test_comparing_outputs_misses_contract_bugs(contract: str) -> None:
    kind, trace = SamplerBoxKind(contract), traces_for(contract)[0]
    seen = outputs_of(trace, VALUE_CACHE, kind)
    assert isinstance(seen, dict)
    for other in (synchronous(trace), one_by_one(trace, trace.submits(), kind.capabilities)):
        assert compare(trace, seen, outputs_of(other, VALUE_CACHE, kind)).difference is None


def test_finding_says_if_synchronous_run_breaks_contract() -> None:
    both, one = found_in(traces()[0], "penalties"), found_in(traces()[0], "abort")
    for found, how in ((both, "breaks"), (one, "keeps")):
        assert found is not None
        assert found.elsewhere is not None
        assert (found.elsewhere.reference, found.elsewhere.how) == (Reference.SYNCHRONOUS, how)
    alike = found_in(traces()[1], "penalties")
    assert alike is not None
    assert alike.elsewhere is None


def test_broken_contract_has_one_signature_on_all_traces() -> None:
    verdicts = [check(trace, VALUE_CACHE, kind=SamplerBoxKind("max_tokens")) for trace in traces()]
    found = {signature_of(each, trace) for each, trace in zip(verdicts, traces(), strict=True)} - {None}
    (signature,) = found
    assert signature is not None
    assert signature.bug == "contracts max_tokens"
    assert plane(verdicts[0]) == PLANE


@pytest.mark.parametrize("seed", [*range(15), 713, 1447, 2558])
def test_our_engine_keeps_every_contract_in_every_step(seed: int) -> None:
    trace = random_trace(seed).explicit()
    run = Run(trace, VALUE_CACHE, Options(races=False), BlackBoxOfOurs())
    assert run.panel.contracts is not None
    assert run.panel.contracts.sees == ("outputs",)
    assert run.to_end() is None


# Faults with the same effect in every batch and at every time.
SHARED = {
    "trtllm-17701-penalties-ignored": ("penalties", {"presence_penalty": 2.0, "num_logprobs": 6}),
    "vllm-32642-stops-at-drafts": ("min_tokens", {"min_tokens": 40}),
}


@pytest.mark.parametrize("fault", SHARED)
@pytest.mark.parametrize("depth", [1, 2])
def test_fault_shared_by_all_runs_is_found_by_contract(fault: str, depth: int) -> None:
    contract, asked = SHARED[fault]
    requests = [
        Submit(
            tick=0,
            request=f"r{index}",
            prompt=(index, 5),
            max_tokens=40,
            stop=(3, 8, 11, 20) if contract == "min_tokens" else (),
            params=SamplingParams.model_validate(asked),
        )
        for index in range(3)
    ]
    clean = Trace(spec=EngineSpec(depth=depth), events=tuple(requests)).explicit()
    assert isinstance(check(clean, VALUE_CACHE, kind=BlackBoxOfOurs()), Agreed)
    trace = clean.model_copy(update={"faults": (fault,)})
    verdict = check(trace, VALUE_CACHE, kind=BlackBoxOfOurs())
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.plane, verdict.difference.variable) == (PLANE, contract)
    elsewhere = verdict.difference.elsewhere
    assert (elsewhere.how if elsewhere is not None else None) == ("breaks" if depth == 2 else None)
    seen = outputs_of(trace, VALUE_CACHE, BlackBoxOfOurs())
    assert isinstance(seen, dict)
    for other in (synchronous(trace), *(trace.model_copy(update={"events": (event,)}) for event in trace.events)):
        assert compare(trace, seen, outputs_of(other, VALUE_CACHE, BlackBoxOfOurs())).difference is None


def test_broken_contract_is_found_although_oracle_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = loads("events:\n  - {tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 4}\n", "x").explicit()

    def with_one_more(target: SpecstormTarget) -> dict[str, Output]:
        return {"a": Output((1, 2, 3, 4, 5), "length")}

    monkeypatch.setattr(SpecstormTarget, "outputs", with_one_more)
    verdict = check(trace, VALUE_CACHE)
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.plane, verdict.difference.variable) == (PLANE, "max_tokens")
    assert next(iter(finding_lines(verdict))) == f"request a at position 4, step {verdict.difference.step}"
