"""Commands as subprocesses and in this process: exit codes, files and output."""

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch.origin import ROOT
from scenarios import codec
from tests.cluster.cli.conftest import Here
from tests.cluster.documents import document_of
from tests.cluster.processes import runs_below

FOUND = "vllm-38556-backup-token"
ELSEWHERE = "vllm-38556-accepted-counts"
SECONDS_MAX = 600.0
SCENARIO = """
spec: {{max_num_batched_tokens: 8, max_num_seqs: 3, vocab_size: 16}}
seed: {seed}
events:
- {{tick: 0, do: submit, request: r0, prompt: {{tokens: 19}}, max_tokens: 12, accept: {{rate: 0.5}}}}
- {{tick: 1, do: submit, request: r1, prompt: {{tokens: 5}}, max_tokens: 9, accept: alternate}}
- {{tick: 4, do: preempt, request: r1}}
- {{tick: 6, do: reorder, how: reverse}}
"""


def scenarios(folder: Path, count: int) -> Path:
    """Write scenarios that differ in their seed only; return their folder."""
    below = folder / "scn"
    below.mkdir()
    for seed in range(count):
        (below / f"s{seed:02d}.yaml").write_text(SCENARIO.format(seed=seed))
    return below


def start(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start `specstorm` in a folder, in a process group of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-m", "cluster", *arguments],
        env={**inherited, "PYTHONPATH": str(ROOT), **(environment or {})},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def specstorm(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `specstorm` in a folder to its end."""
    process = start(folder, *arguments, environment=environment)
    out, err = process.communicate(timeout=SECONDS_MAX)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the stderr of a command without its progress lines."""
    return [line for line in done.stderr.splitlines() if " scenarios, " not in line]


def wait_for(happened: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait until a condition is true, while a process runs."""
    end = time.monotonic() + SECONDS_MAX
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def num_results(campaign: Path) -> int:
    """Return the number of results of a campaign, which may still run."""
    try:
        database = sqlite3.connect(f"file:{campaign / 'campaign.sqlite'}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        return int(database.execute("SELECT COUNT(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        database.close()


def test_scenarios_that_agree_exit_with_0_and_say_where_the_results_lie(tmp_path: Path, here: Here) -> None:
    scenarios(tmp_path, 2)
    for number in (1, 2):
        done = here("run", "scn", "--ray", "off")
        assert done.returncode == 0, done.stderr
        assert "2 scenarios: 2 agreed" in done.stdout
        assert f"results: campaigns/scn-000{number}" in done.stdout
        assert complaints(done) == []
        assert num_results(tmp_path / "campaigns" / f"scn-000{number}") == 2


def test_a_finding_exits_with_1_and_replays_to_the_same_verdict(tmp_path: Path, here: Here) -> None:
    scenarios(tmp_path, 1)
    done = here("run", "scn", "--ray", "off", "--out", "out", "--fault", FOUND, "--json")
    assert done.returncode == 1, done.stderr
    (entry,) = document_of("run", done.stdout)["scenarios"]
    artefact = Path("out", entry["artefact"])
    assert codec.load(tmp_path / artefact).faults == (FOUND,)
    replayed = here("replay", str(artefact), "--json")
    assert replayed.returncode == 1
    told = document_of("replay", replayed.stdout)["scenarios"][0]
    assert told["verdict"] == entry["verdict"]
    last = here("replay", str(artefact)).stdout.splitlines()[-1]
    assert last.startswith(f"schedules: the file's own, then {told['schedules'] - 1} ")
    result = specstorm(tmp_path, "run", "scn", "--ray", "off", "--out", "out", "--fault", FOUND)
    assert result.returncode == 1
    (line,) = [line for line in result.stdout.splitlines() if "replay: " in line]
    assert line.endswith(f"-m cluster replay {artefact}")
    again = shlex.split(line.partition("replay: ")[2])
    done = subprocess.run(
        again, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    healed = here("replay", str(artefact), "--no-faults")
    assert healed.returncode == 0


def test_a_scenario_without_events_is_vacuous(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.yaml").write_text("events: []\n")
    for command in (["replay"], ["run", "--ray", "off", "--out", str(tmp_path / "out")]):
        assert cli.run([*command, str(tmp_path / "empty.yaml")]) == 3
        assert "no event: nothing was asked of the engine" in capsys.readouterr().out


def test_a_fault_that_is_never_reached_exits_with_3_and_says_where(tmp_path: Path, here: Here) -> None:
    scenarios(tmp_path, 1)
    done = here("run", "scn", "--ray", "off", "--fault", ELSEWHERE)
    assert done.returncode == 3
    assert f"fault {ELSEWHERE} was never reached in: scn/s00.yaml" in done.stdout


BAD = [
    (["run", "no-such-folder"], "no such file"),
    (["run", "bad.yaml"], "bad.yaml"),
    (["run", "scn", "--fault", "vllm-38556-backup"], f"did you mean {FOUND} or "),
    (["run", "faulty.yaml"], f"faulty.yaml:9: unknown fault 'vllm-38556-backup'; did you mean {FOUND} or "),
    (["run", "huge.yaml"], "1,000,000 ticks until the end of the last event; allowed are 20,000"),
    (["run", "scn", "--ray", "http://127.0.0.1:8265"], "expected local, off or HOST:PORT"),
    (["run", "scn", "--ray", "off", "--workers", "2"], "--ray off runs one engine"),
    (["run", "scn", "--workers", "0"], "--workers"),
    (["run", "scn", "--seed", "-1"], "--seed"),
    (["run", "scn", "--seed", "three"], "--seed"),
    (["run", "scn", "--seed", str(2**63)], "--seed"),
    (["run", "scn", "--out", "bad.yaml"], "bad.yaml: cannot be used: Not a directory"),
    (["run", "scn", "--out", "scn"], "scn: is not a campaign, it holds s00.yaml"),
    (["run", "scn", "--out", "/proc/none"], "/proc/none: cannot be written"),
    (["run", "scn", "--out", "n" * 300], "File name too long"),
    (["run", "n" * 300], "File name too long"),
    (["run", "a\x00b"], "embedded null byte"),
    (["run", "loop.yaml"], "loop.yaml: Too many levels of symbolic links"),
    (["run", "loops"], "loops/loop.yaml: Too many levels of symbolic links"),
    (["run", "bad.yaml\x1b[2J"], "bad.yaml\\x1b[2J: no such file"),
    (["hunt", "--corpus", "loops"], "Too many levels of symbolic links"),
    (["nightly", "--regressions", "loops"], "Too many levels of symbolic links"),
    (["shrink", "scn/s00.yaml", "--out", "bad.yaml"], "bad.yaml: is not a folder"),
    (["shrink", "scn/s00.yaml", "--out", "n" * 300], "its name is too long"),
    (["run", "scn", "--ray", "banana"], "Ray at banana: no such address; expected local, off or HOST:PORT"),
    (["run", "scn", "--ray", "127.0.0.1:99999"], "a port to 65535"),
    (["run", "scn", "--ray", "127.0.0.1:1"], "Ray at 127.0.0.1:1: Connection refused"),
    (["hunt", "--ray", "127.0.0.1:1"], "Ray at 127.0.0.1:1: Connection refused"),
    (["faults", "measure", "--ray", "127.0.0.1:1"], "Ray at 127.0.0.1:1: Connection refused"),
    (["run"], "PATH"),
    (["runn", "scn"], "No such command"),
    (["run", "scn", "--frobnicate"], "No such option"),
    (["replay", "no-such-file.yaml"], "no-such-file.yaml"),
    (["faults", "show", "vllm-38556-backup"], f"did you mean {FOUND} or "),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[ascii(" ".join(arguments))[1:60] for arguments, _ in BAD])
def test_bad_input_exits_with_2_and_one_message_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = scenarios(tmp_path, 1)
    (tmp_path / "bad.yaml").write_text("events: [{do: dance}]\n")
    (tmp_path / "faulty.yaml").write_text(SCENARIO.format(seed=0) + "faults: [vllm-38556-backup]\n")
    (tmp_path / "huge.yaml").write_text("events: [{tick: 999999, do: dummy_step}]\n")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "loop.yaml").symlink_to("loop.yaml")
    before = sorted(tmp_path.rglob("*"))
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    assert code == 2, err
    assert message in err
    assert err.startswith("specstorm: ")
    assert len(err.splitlines()) == 1
    assert out == ""
    assert sorted(tmp_path.rglob("*")) == before
    assert folder.exists()


def test_process_returns_the_exit_code_without_more_output(tmp_path: Path) -> None:
    done = specstorm(tmp_path, "run", "no-such-folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("specstorm: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_json_report_is_the_same_on_any_pool_and_names_no_host(tmp_path: Path) -> None:
    folder = scenarios(tmp_path, 3)
    off = specstorm(tmp_path, "run", "scn", "--ray", "off", "--out", "a", "--fault", FOUND, "--json")
    local = specstorm(tmp_path, "run", str(folder), "--ray", "local", "--out", "b", "--fault", FOUND, "--json")
    assert (off.returncode, local.returncode) == (1, 1)
    assert off.stdout == local.stdout
    assert str(tmp_path) not in off.stdout
    assert str(ROOT) not in off.stdout


def test_the_seed_of_the_command_line_replaces_the_scenarios_own(tmp_path: Path, here: Here) -> None:
    scenarios(tmp_path, 2)
    done = here("run", "scn", "--ray", "off", "--seed", "5", "--json")
    first, second = json.loads(done.stdout)["scenarios"]
    assert first["verdict"] == second["verdict"]
    own = here("run", "scn", "--ray", "off", "--json")
    assert json.loads(own.stdout)["scenarios"][0]["verdict"] != first["verdict"]


# Far more than one is judged before a process knows of the first.
STOPPED = 8


@pytest.mark.parametrize(("ray", "signum", "code"), [("off", signal.SIGINT, 130), ("local", signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_that_a_second_run_completes(
    tmp_path: Path, ray: str, signum: signal.Signals, code: int
) -> None:
    scenarios(tmp_path, STOPPED)
    arguments = ("run", "scn", "--ray", ray, "--out", "out")
    process = start(tmp_path, *arguments)
    wait_for(lambda: num_results(tmp_path / "out") >= 1, process)
    # A terminal signals the whole group; a job server signals it too.
    os.killpg(process.pid, signum)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == code, out + err
    assert "not run" in out
    assert f"interrupted by {signum.name}; continue with: " in out
    assert "cluster run scn --ray" in out
    kept = num_results(tmp_path / "out")
    assert 1 <= kept < STOPPED
    # A run that was stopped on Ray can resume without Ray.
    done = specstorm(tmp_path, "run", "scn", "--ray", "off", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"kept from an earlier run: {kept} of {STOPPED} results" in done.stdout
    assert num_results(tmp_path / "out") == STOPPED


def test_second_signal_stops_an_in_process_run_which_resumes(tmp_path: Path) -> None:
    # All schedules of it take seconds.
    submits = [
        f"{{tick: 0, do: submit, request: r{each}, prompt: {{tokens: 20}}, max_tokens: 100}}" for each in range(4)
    ]
    (tmp_path / "long.yaml").write_text("events:\n" + "".join(f"  - {submit}\n" for submit in submits))
    process = start(tmp_path, "run", "long.yaml", "--ray", "off", "--out", "out")
    wait_for(lambda: any((tmp_path / "out" / "running").glob("*.yaml")), process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "a second signal stops it at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130, out + err
    # The first one may have come before the trace was begun.
    assert "interrupted; continue with: " in err or "interrupted by SIGINT; continue with: " in out
    assert num_results(tmp_path / "out") == 0
    assert specstorm(tmp_path, "run", "long.yaml", "--ray", "off", "--out", "out").returncode == 0
    assert num_results(tmp_path / "out") == 1


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_ray_starts_stops_the_run_as_well(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    scenarios(tmp_path, 1)
    process = start(tmp_path, "run", "scn", "--ray", "local", "--out", "out")
    wait_for(lambda: runs_below(process.pid, "gcs_server"), process)
    process.send_signal(signum)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == code, out + err
    assert num_results(tmp_path / "out") == 0


def test_a_killed_run_leaves_the_trace_it_was_running_and_resumes(tmp_path: Path) -> None:
    scenarios(tmp_path, 4)
    arguments = ("run", "scn", "--ray", "off", "--out", "out")
    process = start(tmp_path, *arguments)
    running = tmp_path / "out" / "running"
    wait_for(lambda: num_results(tmp_path / "out") >= 1 and any(running.glob("*.yaml")), process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS_MAX)
    left = list(running.glob("*.yaml"))
    assert len(left) <= 1
    for file in left:
        assert specstorm(tmp_path, "replay", str(file)).returncode == 0
    done = specstorm(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert num_results(tmp_path / "out") == 4
    assert list(running.iterdir()) == []


def test_faults_are_listed_and_shown(here: Here) -> None:
    assert FOUND in here("faults", "list").stdout
    result = here("faults", "show", FOUND)
    assert result.returncode == 0
    assert "source:   vllm" in result.stdout


def test_a_package_of_the_same_name_from_elsewhere_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "elsewhere" / "workers"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    code = f"import sys; sys.path[:0] = [{str(foreign.parent)!r}]; from cluster.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 2
    assert f"package 'workers' is imported from {foreign}" in done.stderr


def test_neither_replay_nor_a_run_without_ray_loads_ray_or_torch(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    code = "import sys; from cluster.cli.main import run; code = run(sys.argv[1:]); "
    code += "sys.exit(code or any(name in sys.modules for name in ('ray', 'torch', 'triton')))"
    for arguments in (["replay", "scn/s00.yaml"], ["run", "scn", "--ray", "off"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_option_without_effect_is_warned_of_once(tmp_path: Path, here: Here) -> None:
    below = scenarios(tmp_path, 2)
    for path in below.iterdir():
        path.write_text(path.read_text().replace("spec: {", "spec: {cascade: true, "))
    warned = "warning: scn/s00.yaml and 1 more: cascade is True, but switched off at depth 2: the host counts drafts"
    done = here("run", "scn", "--ray", "off")
    assert done.returncode == 0, done.stderr
    (complaint,) = complaints(done)
    assert complaint.startswith(warned)
    done = here("run", "scn/s00.yaml", "--ray", "off", "--fault", "vllm-32951-cascade-stays-on")
    assert "warning" not in done.stderr


def test_traces_of_known_faults_run_only_if_named(tmp_path: Path, here: Here) -> None:
    below = scenarios(tmp_path, 1)
    known = below / "regressions" / "known.yaml"
    known.parent.mkdir()
    known.write_text(SCENARIO.format(seed=0) + f"faults: [{FOUND}]\n")
    done = here("run", "scn", "--ray", "off")
    assert done.returncode == 0, done.stderr
    assert "1 scenario: 1 agreed" in done.stdout
    (complaint,) = complaints(done)
    assert complaint.startswith("scn: 1 scenarios that switch faults on were skipped; name the file")
    assert here("run", "scn/regressions/known.yaml", "--ray", "off").returncode == 1
    done = here("run", "scn/regressions", "--ray", "off")
    assert done.returncode == 2
    (complaint,) = complaints(done)
    assert complaint.startswith("specstorm: scn/regressions: skipped all scenarios (1), which switch faults on")


def test_trace_that_needs_its_fault_is_not_replayed_without_it(tmp_path: Path, here: Here) -> None:
    (tmp_path / "deep.yaml").write_text(
        SCENARIO.format(seed=0).replace("spec: {", "faults: [specstorm-depth-3]\nspec: {depth: 3, ")
    )
    assert here("replay", "deep.yaml").returncode in (0, 1)
    done = here("replay", "deep.yaml", "--no-faults")
    assert done.returncode == 2
    assert "without its faults it cannot run: depth is 3; allowed are 1 and 2" in done.stderr
