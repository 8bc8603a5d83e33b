"""Build the reported difference between an observed value of a step and its expected value."""

from workers.record.evidence import Difference, plain_value


def mismatch(
    plane: str,
    variable: str,
    request: int | str | None,
    where: tuple[int, int | None],
    expected: object,
    actual: object,
) -> Difference:
    """Return a `Difference` at `where` (step, position); values are plain or messages (`Fact`).

    `request` is the number of a submit, the name of a request, or None if the difference belongs to no request.
    """
    step, position = where
    return Difference(
        plane=plane,
        variable=variable,
        request="" if request is None else request if isinstance(request, str) else f"submit {request}",
        step=step,
        position=position,
        expected=plain_value(expected),
        actual=plain_value(actual),
    )
