"""The strict YAML reader gives the same result with libyaml and with PyYAML's own parser."""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import yaml

from scenarios.codec import ScenarioError, loads
from scenarios.strict_yaml import Data, Lines, read

SMOKE = Path(__file__).parents[2] / "scenarios" / "smoke"
PIECES = [*"?:-[]{},#'\"\\|>~@!\té1", "\n", "\n  ", ": ", "- ", " #", "? ", "&a", "*a", "!t", "<<", ""]
PIECES += ["%YAML 1.1\n", "---\n", "...\n"]
NUM_TEXTS = 200

needs_libyaml = pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")


def edited() -> Iterator[str]:
    """Yield the ends of scenario files with YAML syntax inserted and characters removed at random."""
    rng = random.Random(7)
    texts = [path.read_text() for path in sorted(SMOKE.glob("*.yaml"))]
    for _ in range(NUM_TEXTS):
        text = "".join(rng.choice(texts).splitlines(keepends=True)[-rng.randrange(1, 6) :])
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(PIECES) + text[at + rng.randrange(4) :]
        yield text


def answer(text: str) -> tuple[Data, Lines] | str:
    """Return the data and lines of a text, or the message of its refusal."""
    try:
        return read(text, "f")
    except ScenarioError as error:
        return str(error)


@needs_libyaml
def test_read_is_the_same_with_and_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = list(edited())
    found = [answer(text) for text in texts]
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert found == [answer(text) for text in texts]
    num_refused = sum(isinstance(each, str) for each in found)
    assert NUM_TEXTS / 4 < num_refused < 3 * NUM_TEXTS / 4


def edges(count: int) -> str:
    """Return the YAML of a trace with a grammar of `count` edges, 32 in each state."""
    states = (", ".join(f"[{token}, {state + 1}]" for token in range(32)) for state in range(count // 32))
    grammar = ", ".join(f"[{state}]" for state in states)
    params = f"params: {{grammar: [{grammar}, []]}}"
    return f"events:\n  - {{tick: 0, do: submit, request: a, prompt: {{tokens: 4}}, max_tokens: 4, {params}}}\n"


UNKNOWN = edges(32).partition(", params")[0] + "}\nexpect: {" + ", ".join(f"p{n}: 1" for n in range(12_000)) + "}"


@needs_libyaml
@pytest.mark.parametrize(
    ("text", "is_read"),
    [(edges(8_000), nullcontext()), (UNKNOWN, pytest.raises(ScenarioError, match="unknown probe 'p0'"))],
    ids=["edges of a grammar", "unknown probes"],
)
def test_large_file_is_read_by_libyaml_alone(
    text: str, is_read: AbstractContextManager[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Loading fails if the reader falls back to PyYAML's own parser, which takes seven times as long.
    monkeypatch.delattr(yaml, "SafeLoader")
    with is_read:
        loads(text, "f")
