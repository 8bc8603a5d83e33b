"""Output tokens and streaming-session inputs, from an engine's outputs."""

from vllm.v1.engine import EngineCoreOutput


def tokens_of(outputs: list[EngineCoreOutput]) -> list[int]:
    """Return the output tokens of one request, from its engine outputs."""
    return [token for output in outputs for token in output.new_token_ids]


def outputs_by_input(outputs: list[EngineCoreOutput]) -> list[list[EngineCoreOutput]]:
    """Split a streaming session's outputs by input: a finish reason ends each."""
    parts: list[list[EngineCoreOutput]] = [[]]
    for output in outputs:
        parts[-1].append(output)
        if output.finish_reason is not None:
            parts.append([])
    return parts[:-1]
