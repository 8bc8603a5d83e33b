"""Outputs that an engine has delivered."""

from vllm.v1.engine import EngineCoreOutput


def tokens_of(outputs: list[EngineCoreOutput]) -> list[int]:
    """Return all delivered output tokens."""
    return [token for output in outputs for token in output.new_token_ids]


def parts_of(outputs: list[EngineCoreOutput]) -> list[list[EngineCoreOutput]]:
    """Return the outputs of each part of a session: a finish reason ends a part."""
    parts: list[list[EngineCoreOutput]] = [[]]
    for output in outputs:
        parts[-1].append(output)
        if output.finish_reason is not None:
            parts.append([])
    return parts[:-1]
