"""Removal of a line that orders work, and the values that are read from a printed report."""

import pytest

from benchmarks.power.order_lines.printed import named, printed_of, without_statement
from benchmarks.power.order_lines.runs import Line
from scenarios.trace import Trace
from workers.record.evidence import HOST, Access, MissingOrder, Site
from workers.record.verdict import NO_STATS, Agreed, Judgement, NotDrained, Stuck

SOURCE = """class Output:
    def get(self):
        self.event.synchronize()
        stream.wait_event(
            self.event
        )
        self.done = stream.record_event()
        return self.done
"""
LINE = Line("vllm/a.py", 3, "get")
ORDER = MissingOrder(
    first=Access(lane="copy", op="d2h", step=0, site=Site(function="copies", file="vllm/b.py", line=7)),
    second=Access(lane=HOST, op="host", step=1, how="read", site=Site(function="Output.get", file="vllm/a.py", line=4)),
    memory="rows",
)


@pytest.mark.parametrize("line", [4, 5, 6])
def test_without_statement_keeps_all_other_line_numbers(line: int) -> None:
    left = without_statement(SOURCE, line)
    assert left is not None
    assert left.splitlines()[:6] == [*SOURCE.splitlines()[:3], "        pass", "", ""]
    assert left.splitlines()[6:] == SOURCE.splitlines()[6:]


@pytest.mark.parametrize("line", [1, 7, 8])
def test_without_statement_returns_none_unless_it_is_a_call(line: int) -> None:
    assert without_statement(SOURCE, line) is None


def test_race_names_function_or_file_of_a_line() -> None:
    assert named(ORDER, LINE) == "function"
    assert named(ORDER, Line("vllm/a.py", 3, "other")) == "file"
    assert named(ORDER, Line("vllm/c.py", 3, "get")) == "no"


def test_finding_without_its_race_is_not_as_expected() -> None:
    stuck = Stuck(stats=NO_STATS, waits=NotDrained(steps=9))
    verdicts = (stuck.model_copy(update={"missing_order": ORDER}), stuck, Agreed(stats=NO_STATS))
    found = [printed_of(Judgement(verdict=each, trace=Trace(events=()), schedules=1), LINE) for each in verdicts]
    assert [each.is_as_expected for each in found] == [True, False, False]
    assert [each.race for each in found] == ["copies and Output.get", "", ""]
