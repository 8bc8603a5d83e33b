"""Exit codes of commands, computed from the verdicts of their scenarios."""

from collections.abc import Iterable

from workers.record.verdict import Agreed, Verdict, is_finding, is_too_ambiguous

EXIT_AGREED, EXIT_FOUND, EXIT_BAD_INPUT, EXIT_NOT_JUDGED = 0, 1, 2, 3


def exit_code(verdicts: Iterable[Verdict | None]) -> int:
    """Return a command's exit code from its verdicts (None: a scenario without verdict).

    Findings outweigh missing verdicts.
    """
    seen = list(verdicts)
    if any(verdict is not None and is_finding(verdict) for verdict in seen):
        return EXIT_FOUND
    agreed = [verdict.stats for verdict in seen if isinstance(verdict, Agreed)]
    return EXIT_AGREED if len(agreed) == len(seen) and not is_too_ambiguous(agreed) else EXIT_NOT_JUDGED


def weightiest(*codes: int) -> int:
    """Return the exit code with the highest priority among several.

    A finding outweighs a missing verdict, a signal outweighs both.
    """
    return max(codes, key=lambda code: _WEIGHTS.get(code, len(_WEIGHTS)))


_WEIGHTS = {EXIT_AGREED: 0, EXIT_BAD_INPUT: 1, EXIT_NOT_JUDGED: 2, EXIT_FOUND: 3}
