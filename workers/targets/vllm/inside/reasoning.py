"""Reasoning parsers for vLLM in which one token ends the reasoning; then grammars apply."""

from collections.abc import Iterable, Sequence
from typing import Any


def parser_until(token: int) -> str:
    """Register a reasoning parser in which `token` ends the reasoning; return its name."""
    from vllm.reasoning import ReasoningParser, ReasoningParserManager  # noqa: PLC0415

    class Until(ReasoningParser):  # type: ignore[misc]
        """Parser of reasoning that ends with the given token."""

        def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
            return token in input_ids

        def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
            return token in delta_ids

        def extract_content_ids(self, input_ids: list[int]) -> list[int]:
            return input_ids[input_ids.index(token) + 1 :] if token in input_ids else []

        def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
            raise NotImplementedError("tests have tokens only, no text")

        def extract_reasoning_streaming(self, *texts: Any) -> None:
            raise NotImplementedError("tests have tokens only, no text")

    name = f"until-{token}"
    ReasoningParserManager.register_module(name, force=True, module=Until)
    return name
