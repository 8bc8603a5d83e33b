"""The prose of each folder keeps its limits in `language_limits.toml`, which are tight.

Verifies: rates of marker words and of nouns of the field (`language_limits.py` lists both).
Does not verify: that a sentence is clear.
"""

from tests.language_limits import (
    MARKERS_GOAL,
    NOUNS_GOAL,
    Limit,
    Rates,
    limit_for,
    measured,
    problems,
    prose_of_python,
    rates_of,
    read_limits,
    table_of,
    tightened,
)

SOURCE = '''
"""Say what a module does."""
# A comment.
CODE = "# no comment"  # trailing
def refuse(name):
    """Refuse a name."""
    raise ValueError(f"{name}: expected the name of an engine, # or none")
SHORT = "no message"
PROGRAM = """
import os
print(os.getcwd(), "and a text of several words")
"""
'''


def test_folders_keep_their_limits_and_limits_are_tight() -> None:
    assert problems(measured(), read_limits()) == []


def test_prose_is_docstrings_messages_and_comments() -> None:
    assert [*prose_of_python(SOURCE)] == [
        "Say what a module does.",
        "Refuse a name.",
        "_: expected the name of an engine, # or none",
        "A comment.",
        "trailing",
    ]


def test_rates_count_markers_and_nouns_per_thousand_words() -> None:
    text = "Of two draft tokens, whoever is behind goes on beside the KV cache. " + "word " * 87
    assert rates_of(text) == Rates(100, 50.0, 20.0)


def test_worse_folder_is_reported_with_its_rate() -> None:
    (line,) = problems({"cluster": Rates(1000, 5.0, 0.0)}, {"cluster": Limit(4, 0)})
    assert line.startswith("cluster: 5.0 marker words per 1,000 words, at most 4 are allowed")
    (line,) = problems({"cluster": Rates(1000, 2.0, 3.9)}, {"cluster": Limit(3, 4)})
    assert line.startswith("cluster: 3.9 nouns of the field per 1,000 words, at least 4 are required")


def test_better_folder_is_reported_until_its_limit_is_tightened() -> None:
    rates, limits = {"cluster": Rates(1000, 5.0, 6.6)}, {"cluster": Limit(7, 4)}
    (line,) = problems(rates, limits)
    assert line.endswith("run `python -m tests.language_limits` to keep it so")
    assert problems(rates, tightened(rates, limits)) == []


def test_slightly_better_folder_needs_no_tighter_limit() -> None:
    assert problems({"cluster": Rates(1000, 5.9, 4.2)}, {"cluster": Limit(7, 3)}) == []


def test_limit_stops_at_the_goals() -> None:
    assert limit_for(Rates(1000, 0.0, 20.0)) == Limit(MARKERS_GOAL, NOUNS_GOAL)


def test_tightening_never_loosens() -> None:
    limits = {"cluster": Limit(4, 6)}
    assert tightened({"cluster": Rates(1000, 9.0, 0.0)}, limits) == limits


def test_folder_without_limit_and_limit_without_folder_are_reported() -> None:
    lines = problems({"new": Rates(1000, 0.0, 0.0)}, {"gone": Limit(3, 0)})
    assert [line.partition(";")[0] for line in lines] == ["gone: has a limit but hardly any prose", "new: has no limit"]


def test_table_reads_back() -> None:
    assert '"workers/run" = { markers_max = 3, nouns_min = 8 }\n' in table_of({"workers/run": Limit(3, 8)})
