"""How Hypothesis draws the numbers of generated traces: from its seed alone."""

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

BACKEND = "specstorm"


class Provider(HypothesisProvider):
    """Hypothesis as it is, but for the constants that it finds in the source of modules that happen to be loaded.

    A worker, the coordinator and a replay load different modules; the traces of a shard are the same in all of them.
    """

    def _maybe_draw_constant(self, *of: object, **options: object) -> None:
        """Draw no constant."""
        return


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Provider"
