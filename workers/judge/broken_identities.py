"""Difference of a broken identity: a value that a step shows, and what it is due to be."""

from workers.record.evidence import Difference, shown


def broken(
    plane: str,
    variable: str,
    request: int | str | None,
    where: tuple[int, int | None],
    expected: object,
    actual: object,
) -> Difference:
    """Make a difference of a request, by the number of its submit or by its name, or of none of them.

    `where` is the step and the position.
    """
    step, position = where
    return Difference(
        plane=plane,
        variable=variable,
        request="" if request is None else request if isinstance(request, str) else f"submit {request}",
        step=step,
        position=position,
        expected=shown(expected),
        actual=shown(actual),
    )
