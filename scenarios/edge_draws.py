"""Draws of edges in one trace, labelled by its seed, and what any edge changes of its specification and events."""

from collections.abc import Sequence

from scenarios.capabilities import Capabilities
from scenarios.draw import below
from scenarios.events import AnyEvent, PromptDraw, Submit
from scenarios.features import refusals
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

_SITE = "edge"


class EdgeDraws:
    """A trace under change, for an engine of these capabilities: `spec` and `events` are those so far.

    It `is_whole` with an edge that other changes would take from it.
    """

    def __init__(self, trace: Trace, capabilities: Capabilities) -> None:
        self._trace, self._capabilities = trace, capabilities
        has_layers = capabilities.allows("layers", trace.spec.layers)
        self.spec = trace.spec if has_layers else trace.spec.model_copy(update={"layers": "attention"})
        self.events: list[AnyEvent] = list(trace.events)
        self.is_whole = False

    def _changed(self) -> Trace:
        """Return the trace with what has been changed so far."""
        return self._trace.model_copy(update={"spec": self.spec, "events": tuple(self.events)})

    def _pick(self, bound: int, what: str, index: int = 0) -> int:
        return below(bound, self._trace.seed, _SITE, what, index)

    def _one_in(self, count: int, what: str, index: int = 0) -> bool:
        return not self._pick(count, what, index)

    def _set(self, **keys: object) -> None:
        self.spec = self.spec.model_copy(update=keys)

    def _set_if_allowed(self, **keys: object) -> None:
        self._set(**{key: value for key, value in keys.items() if self._capabilities.allows(key, value)})

    def _cache_prefixes(self) -> None:
        """Keep prefixes, with the states at their ends, where an engine of this specification can."""
        before = self.spec
        self._set_if_allowed(prefix_cache=True, recurrent_cache="align")
        if refusals(self.spec, ()):
            self.spec = before

    def _submits(self) -> Sequence[tuple[int, Submit]]:
        """Return the submits with drawn prompts, each with its place among the events."""
        events = enumerate(self.events)
        return [
            (place, each) for place, each in events if isinstance(each, Submit) and isinstance(each.prompt, PromptDraw)
        ]

    def _change(self, place: int, **fields: object) -> None:
        self.events[place] = self.events[place].model_copy(update=fields)

    def _lengthen(self, place: int, tokens: int, common: int | None = None) -> None:
        """Give the prompt of a submit so many tokens, as many of them `common` as before or as is said."""
        event = self.events[place]
        assert isinstance(event, Submit), "only submits have prompts"
        assert isinstance(event.prompt, PromptDraw), "the prompt is drawn"
        shared = min(tokens, event.prompt.common if common is None else common)
        self._change(place, prompt=event.prompt.model_copy(update={"tokens": tokens, "common": shared}))

    def _without_drafts(self) -> None:
        """Draft nothing, and draw the tokens of most requests."""
        plain = {key: EngineSpec.model_fields[key].default for key in ("drafter", "draft_sampling")}
        self._set(num_speculative_tokens=0, **plain)
        for place, submit in self._submits():
            if not submit.params.temperature and self._pick(4, "temperature", place):
                temperature, seed = (0.5, 1.0)[self._pick(2, "degrees", place)], self._pick(1 << 62, "seed", place)
                params = submit.params.model_copy(update={"temperature": temperature, "seed": seed})
                self._change(place, params=params)
