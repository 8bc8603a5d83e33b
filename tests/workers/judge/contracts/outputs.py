"""Hand-made outputs, checked by the contracts of one request."""

from scenarios.events import AnyEvent, Submit
from scenarios.sampling import Output, SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Terms
from workers.judge.contracts.judge import Contracts

SPEC = EngineSpec(vocab_size=8, max_model_len=16)


def submit_of(prompt: tuple[int, ...] = (1, 2), max_tokens: int = 4, **asked: object) -> Submit:
    """Return a submit event; keywords other than `stop` are sampling parameters."""
    stop = asked.pop("stop", ())
    params = SamplingParams.model_validate(asked)
    return Submit.model_validate(
        {"tick": 0, "request": "a", "prompt": prompt, "max_tokens": max_tokens, "stop": stop, "params": params}
    )


def judged(
    submit: Submit, output: Output | None, spec: EngineSpec = SPEC, words_from_prompt: bool = True
) -> Breach | None:
    """Return the violation of a request's output, or None."""
    contracts = Contracts(Terms(Trace(spec=spec, events=(submit,)), words_from_prompt))
    contracts.submitted(submit, None, None)
    return contracts.first_breach({} if output is None else {"a": output})


def contracts_of(*events: AnyEvent) -> Contracts:
    """Return a new judge of contracts for a trace of these events."""
    return Contracts(Terms(Trace(spec=SPEC, events=events), True))


def broken(submit: Submit, output: Output | None, spec: EngineSpec = SPEC) -> tuple[str, int | None] | None:
    """Return the contract that an output violates, and the position, or None."""
    found = judged(submit, output, spec)
    return None if found is None else (found.contract, found.position)
