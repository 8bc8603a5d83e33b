"""Recording of executed lines, and the page's explanations of lines that never run."""

from benchmarks.power.line_coverage import ROOT, Line, Watch, executable, explained, files, lines_run, unreached
from workers.engine.request import Request
from workers.engine.rules import room_for
from workers.kernels.draw_noise import definition

REQUEST = Request(0, "a", [1], 1, 9, frozenset(), [])


def test_watch_records_executed_lines_only() -> None:
    path = ROOT / "workers" / "engine" / "rules.py"
    text = path.read_text(encoding="utf-8").splitlines()
    with Watch([path]) as watch:
        assert room_for(REQUEST, 30, 3) == 3
    seen = [text[number - 1].strip() for number in watch.seen[str(path)]]
    assert "return min(wanted, max_model_len - request.num_computed)" in seen
    assert 'return request.finish_reason or "abort"' not in seen
    assert definition.__file__ not in map(str, files())


def test_watch_records_lines_of_an_earlier_watch_again() -> None:
    path = ROOT / "workers" / "engine" / "rules.py"
    found = []
    for _ in range(2):
        with Watch([path]) as watch:
            assert room_for(REQUEST, 30, 3) == 3
        found.append(watch.seen[str(path)])
    assert found[0] == found[1] != set()


def test_executable_counts_function_bodies_without_definitions() -> None:
    path = ROOT / "workers" / "engine" / "rules.py"
    text = path.read_text(encoding="utf-8").splitlines()
    lines = {text[number - 1].strip() for number in executable(path)}
    assert "return 0 if row.discard else k_step" in lines
    assert not any(line.startswith(("def ", "from ", '"""')) for line in lines)


def test_explained_lines_are_executable_and_few_traces_leave_more() -> None:
    nothing = {str(path): set[int]() for path in files()}
    everything, few = unreached(nothing), unreached(lines_run(1, 0))
    assert explained().keys() <= everything.keys()
    assert len(explained()) < len(few) < len(everything) / 2
    assert Line("workers/engine/rules.py", "return 0 if row.discard else k_step") in everything.keys() - few.keys()
