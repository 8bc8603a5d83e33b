"""Parsers of reasoning, as vLLM asks for them: what comes before a token is free, behind it grammars bind."""

from collections.abc import Iterable, Sequence
from typing import Any


def parser_until(token: int) -> str:
    """Return the name under which vLLM knows the parser of reasoning that ends with a token."""
    from vllm.reasoning import ReasoningParser, ReasoningParserManager  # noqa: PLC0415

    class Until(ReasoningParser):  # type: ignore[misc]
        """Reasoning until a token, which is not among what is reasoned."""

        def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
            return token in input_ids

        def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
            return token in delta_ids

        def extract_content_ids(self, input_ids: list[int]) -> list[int]:
            return input_ids[input_ids.index(token) + 1 :] if token in input_ids else []

        def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
            raise NotImplementedError("no text is taken apart here")

        def extract_reasoning_streaming(self, *texts: Any) -> None:
            raise NotImplementedError("no text is taken apart here")

    name = f"until-{token}"
    ReasoningParserManager.register_module(name, force=True, module=Until)
    return name
