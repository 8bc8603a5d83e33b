"""Builder of a random trace for one engine: specification, events, situations so far."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm

from scenarios.capabilities import Capabilities, with_params
from scenarios.draw import below
from scenarios.events import PromptDraw, Submit
from scenarios.features import refusals
from scenarios.generation.fitting import fitted_to
from scenarios.generation.situation import Generated, Situation, Stage
from scenarios.generation.weights import Weights
from scenarios.sampling import PARAMS, Addition
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems


class TraceBuilder:
    """Random trace while it is generated; situations change its `spec` and `events`.

    Random numbers are labelled by the seed of the trace, by the situation that samples them and by their subject. With
    `is_complete` no later situation may change sizes or requests.
    """

    def __init__(self, generated: Generated, engine: Capabilities, weights: Weights) -> None:
        self._trace, self._situations = generated.trace, [*generated.situations]
        self.engine, self._weights = engine, weights
        self.spec, self.events = generated.trace.spec, [*generated.trace.events]
        self.is_complete = False
        self._sampled = {*generated.situations}
        self._site = ""

    @property
    def trace(self) -> Trace:
        """The trace with all changes so far."""
        return self._trace.model_copy(update={"spec": self.spec, "events": tuple(self.events)})

    @property
    def generated(self) -> Generated:
        """The trace, with the names of the situations that changed it."""
        return Generated(self.trace, tuple(dict.fromkeys(self._situations)))

    def add(self, situations: Iterable[Situation["TraceBuilder"]]) -> None:
        """Sample each possible situation by its weight; change the trace by those sampled."""
        for each in situations:
            is_possible = each.is_possible_in(self.engine, self.spec) and not self._sampled & {*each.unless}
            if is_possible and (each.along_with in self._sampled or self._is_sampled(each.name)):
                self.put(each)

    def put_if_possible(self, situation: Situation["TraceBuilder"] | None, stage: Stage) -> None:
        """Change the trace by a situation if it belongs to `stage` and is possible."""
        if situation is not None and situation.stage == stage and situation.is_possible_in(self.engine, self.spec):
            self.put(situation)

    def put(self, situation: Situation["TraceBuilder"]) -> None:
        """Change the trace by a situation; record its name if the trace is now different.

        A change by a situation of stage `last` is undone if it makes the trace invalid.
        """
        self._sampled.add(situation.name)
        spec, events, count = self.spec, [*self.events], len(self._situations)
        self._site = situation.name
        situation(self)
        if situation.stage == "last" and problems(self.trace):
            self.spec, self.events = spec, events
        if spec != self.spec or events != self.events:
            self._situations.append(situation.name)
        else:
            # The situation changed nothing, so neither did its parts.
            del self._situations[count:]

    def has(self, name: str, index: int = 0) -> bool:
        """Sample by weight whether a variant of the current situation applies; record it if so."""
        found = self._is_sampled(name, index)
        if found:
            self.note(name)
        return found

    def note(self, name: str) -> None:
        """Record the name of a variant of the current situation (`part_of`) that changed the trace."""
        self._sampled.add(name)
        self._situations.append(name)

    def has_sampled(self, name: str) -> bool:
        """Return whether a situation was sampled for this trace, even if it changed nothing."""
        return name in self._sampled

    def choice(self, names: Sequence[str], of: str) -> str:
        """Return the name of one of several situations, sampled by weight; "" for none."""
        weights = [self._weights[name] for name in names]
        total = max(Fraction(1), sum(weights, Fraction(0)))
        unit = lcm(total.denominator, *(weight.denominator for weight in weights))
        number = below(int(total * unit), self._trace.seed, of, "choice", 0)
        ends = accumulate(int(weight * unit) for weight in weights)
        found = next((name for name, end in zip(names, ends, strict=True) if number < end), "")
        return "" if found in self._weights.without else found

    def _is_sampled(self, name: str, index: int = 0) -> bool:
        weight = self._weights[name]
        number = below(weight.denominator, self._trace.seed, name, "has", index)
        return number < weight.numerator and name not in self._weights.without

    def pick(self, bound: int, what: str, index: int = 0) -> int:
        """Return a random integer below `bound` for the label (situation, `what`, `index`)."""
        return below(bound, self._trace.seed, self._site, what, index)

    def one_in(self, count: int, what: str, index: int = 0) -> bool:
        """Return true with probability 1 / `count`."""
        return not self.pick(count, what, index)

    def set(self, **keys: object) -> None:
        """Set keys of the trace's specification."""
        self.spec = self.spec.model_copy(update=keys)

    def set_if_allowed(self, **keys: object) -> None:
        """Set keys of the specification; skip values that the engine does not allow."""
        self.set(**{key: value for key, value in keys.items() if self.engine.allows(key, value)})

    def at_least(self, **keys: int) -> None:
        """Raise keys of the specification to at least these values."""
        self.set(**{key: max(getattr(self.spec, key), least) for key, least in keys.items()})

    def is_valid(self, submit: Submit) -> bool:
        """Return whether a submit is valid with the trace's specification."""
        return not problems(self._trace.model_copy(update={"spec": self.spec, "events": (submit,)}))

    def fit(self) -> None:
        """Remove everything that the engine does not support; rescale lengths to its block size."""
        fitting = fitted_to(self.trace, self.engine)
        self.spec, self.events = fitting.spec, [*fitting.events]
        self._trace = fitting

    def cache_prefixes(self) -> None:
        """Enable the prefix cache, and recurrent states at block ends, if allowed."""
        before = self.spec
        self.set_if_allowed(prefix_cache=True, recurrent_cache="align")
        if refusals(self.spec, ()):
            self.spec = before

    def every_submit(self) -> Sequence[tuple[int, Submit]]:
        """Return the submits, each with its index among the events."""
        return [(index, each) for index, each in enumerate(self.events) if isinstance(each, Submit)]

    def submits(self) -> Sequence[tuple[int, Submit]]:
        """Return the submits with generated prompts, each with its index among the events."""
        return [(index, each) for index, each in self.every_submit() if isinstance(each.prompt, PromptDraw)]

    def submit(self, index: int) -> Submit:
        """Return the submit at an index among the events."""
        event = self.events[index]
        assert isinstance(event, Submit), "it is a submit"
        return event

    def prompt(self, index: int) -> PromptDraw:
        """Return the generated prompt of the submit at an index."""
        prompt = self.submit(index).prompt
        assert isinstance(prompt, PromptDraw), "the prompt is generated"
        return prompt

    def change(self, index: int, **fields: object) -> None:
        """Set fields of the event at an index."""
        self.events[index] = self.events[index].model_copy(update=fields)

    def set_params(self, index: int, **params: object) -> None:
        """Set sampling parameters of a submit."""
        self.events[index] = with_params(self.submit(index), params)

    def add_param(self, key: str) -> None:
        """Add a sampling parameter to all submits, with values that its `Feature` generates."""
        for index, submit in self.every_submit():
            self.set_params(index, **PARAMS[key].added(Addition(submit.params, self.spec, self._trace.seed, index)))

    def lengthen(self, index: int, tokens: int, common: int | None = None) -> None:
        """Set the length of a prompt and, if given, of the `common` prefix that it shares."""
        prompt, tokens = self.prompt(index), max(1, tokens)
        shared = min(tokens, prompt.common if common is None else common)
        self.change(index, prompt=prompt.model_copy(update={"tokens": tokens, "common": shared}))

    def drop_drafts(self) -> None:
        """Propose no draft tokens, and give most requests a temperature."""
        plain = {key: EngineSpec.model_fields[key].default for key in ("drafter", "draft_sampling")}
        self.set(num_speculative_tokens=0, **plain)
        for index, submit in self.submits():
            if not submit.params.temperature and self.pick(4, "temperature", index):
                temperature, seed = (0.5, 1.0)[self.pick(2, "degrees", index)], self.pick(1 << 62, "seed", index)
                self.set_params(index, temperature=temperature, seed=seed)
