"""SGLang's grammar backend for one character per token; it compiles immediately."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from workers.targets.child.inside.tokenizer import character_of

_T = TypeVar("_T")


class Characters:
    """Tokenizer that SGLang's xgrammar backend accepts; the last token is the end of a text."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def init_xgrammar(self) -> tuple[Any, None]:
        """Return xgrammar's vocabulary, and None: its stop tokens stay as they are."""
        from xgrammar import TokenizerInfo, VocabType  # noqa: PLC0415

        texts = [character_of(token) for token in range(self._vocab_size)]
        return TokenizerInfo(texts, VocabType.RAW, stop_token_ids=[self._vocab_size - 1]), None


class ImmediateExecutor(Executor):
    """Executor that runs a call inside `submit`, so that nothing depends on timing."""

    def submit(self, function: Callable[..., _T], /, *arguments: Any, **named: Any) -> "Future[_T]":
        future: Future[_T] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def grammar_backend(args: Any, vocab_size: int) -> Any:
    """Return the grammar backend that a scheduler is configured with, for a vocabulary."""
    from sglang.srt.constrained.base_grammar_backend import create_grammar_backend  # noqa: PLC0415

    backend = create_grammar_backend(args, Characters(vocab_size), vocab_size)
    assert backend is not None, "its tokenizer is supported"
    backend.executor = ImmediateExecutor()
    return backend
