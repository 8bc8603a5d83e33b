"""Observer of trees of drafts: of a step's inputs those are told that are kept, once it is known which they are."""

import sys
from collections.abc import Callable
from typing import Any

from workers.targets.sglang.inside.recorder import Recorder

_WORKER = "sglang.srt.speculative.ngram_worker"


class TreeObserver:
    """Observer of the verification of trees, which it wraps until it is released; `recorder` is that of the steps."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._module = recorder, sys.modules[_WORKER]
        self._sample: Callable[..., Any] = self._module.eagle_sample
        self._module.eagle_sample = self._observed  # type: ignore[attr-defined]

    def release(self) -> None:
        """Leave the worker as it was."""
        self._module.eagle_sample = self._sample  # type: ignore[attr-defined]

    def _observed(self, *arguments: Any, **options: Any) -> Any:
        predicted, counts, nodes = self._sample(*arguments, **options)
        if self._recorder.tell_kept is not None:
            self._recorder.tell_kept(nodes, counts)
            self._recorder.tell_kept = None
        return predicted, counts, nodes
