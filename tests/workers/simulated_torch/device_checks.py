"""Checks of single properties of the device; each check's name states the property."""

import ctypes
import threading
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from scenarios.draw import draw
from scenarios.events import Hold, Label, Schedule
from workers.simulated_torch.backend import Event, Stream, current_stream, stream
from workers.simulated_torch.device import Device, Watching, cuda_names
from workers.simulated_torch.digests import RaceHarm, first_difference, harm_of
from workers.simulated_torch.reports import Report

LAZY = Schedule(policy="lazy")
SIM = "sim"


def eager_runs_immediately_and_lazy_when_the_host_waits(device: Device) -> None:
    for schedule, run_before in ((Schedule(), 2), (LAZY, 0)):
        device.begin(schedule)
        numbers = torch.zeros(4, device=SIM) + 1
        assert device.report().counts["run"] == run_before
        assert numbers.tolist() == [1, 1, 1, 1]


def lazy_runs_only_the_tasks_that_the_host_waits_for(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    awaited, other = Event(), Stream()
    ran: list[str] = []
    device.enqueue("first", lambda: ran.append("first"))
    awaited.record()
    device.enqueue("second", lambda: ran.append("second"))
    with stream(other):
        device.enqueue("third", lambda: ran.append("third"))
    awaited.synchronize()
    assert ran == ["first"]
    device.end()
    assert ran == ["first", "second", "third"]


def random_policy_uses_the_same_random_numbers_as_lanes(device: Device) -> None:
    """Before a host call, tasks with larger random numbers than the call run, largest first."""
    for seed in range(6):
        device.begin(Schedule(policy="random", seed=seed), new_streams=True)
        streams = [current_stream(), Stream(), Stream()]
        ran: list[str] = []
        queues: list[list[str]] = [[], [], []]
        expected: list[str] = []
        for index in range(12):
            name = f"task_{index}"
            urgency = {op: draw(seed, "lane", op, 0) for queue in queues for op in queue[:1]}
            while urgency and max(urgency.values()) >= draw(seed, "host", name, 0):
                most = max(urgency, key=lambda op: urgency[op])
                queue = next(queue for queue in queues if queue[:1] == [most])
                expected.append(queue.pop(0))
                urgency = {op: draw(seed, "lane", op, 0) for queue in queues for op in queue[:1]}
            with stream(streams[index % 3]):
                device.enqueue(name, partial(ran.append, name))
            queues[index % 3].append(name)
        assert ran == expected, f"seed {seed}"
        device.end()
        assert len(ran) == 12


def hold_delays_a_task_until_its_label_has_passed(device: Device) -> None:
    copied = Label(name="copy_d2h", step=2)
    for until in (Label(name="add_", step=2), Label(name="committed", step=2)):
        device.begin(Schedule(holds=(Hold(op=copied, until=until),)), new_streams=True)
        device.step(2)
        numbers, output, side = torch.ones(4, device=SIM), torch.zeros(4, pin_memory=True), Stream()
        side.wait_stream(current_stream())
        with stream(side):
            output.copy_(numbers, non_blocking=True)
        assert device.report().counts["run"] == 1
        numbers.add_(1)
        device.point("committed")
        side.synchronize()
        assert output.tolist() == [2, 2, 2, 2]
        assert [race.buffer for race in device.end().races]


def hold_without_a_release_ends_when_the_host_waits(device: Device) -> None:
    never = Label(name="never", step=0)
    device.begin(Schedule(holds=(Hold(op=Label(name="fill_", step=0), until=never),)))
    assert torch.ones(4, device=SIM).sum().item() == 4


def error_in_a_task_names_the_task_and_its_launch_line(device: Device) -> None:
    device.begin(LAZY)
    table, index = torch.zeros(4, 2, device=SIM), torch.tensor([9], device=SIM)
    table.index_select(0, index)
    with pytest.raises(IndexError, match=r"(?s)in the task index_select of stream 0, launched at .*device_checks.py"):
        device.end()
    assert device.end().races == ()


def task_may_not_launch_device_work(device: Device) -> None:
    device.begin(LAZY)
    device.enqueue("nested", lambda: torch.zeros(3, device=SIM))
    with pytest.raises(RuntimeError, match=r"a task launches device work.*it is nested"):
        device.end()


def python_task_raises_its_own_exception(device: Device) -> None:
    device.begin()
    with pytest.raises(ZeroDivisionError):
        device.enqueue("divide", lambda: 1 // 0)


def polling_ends_under_the_lazy_policy(device: Device) -> None:
    device.begin(LAZY)
    done, output = Event(), torch.zeros(4, pin_memory=True)
    output.copy_(torch.ones(4, device=SIM), non_blocking=True)
    done.record()
    polls = 0
    while not done.query():
        polls += 1
        assert polls < 100
    assert polls > 0
    # A thread that has seen the event done is ordered after it.
    assert output.numpy().sum() == 4
    assert device.end().races == ()


def freed_memory_is_reused_immediately_and_only_by_its_stream(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    first = torch.empty(1000, device=SIM)
    address = first.data_ptr()
    del first
    with stream(Stream()):
        other = torch.empty(1000, device=SIM)
    again = torch.empty(1000, device=SIM)
    assert again.data_ptr() == address != other.data_ptr()


def recorded_memory_is_reused_after_a_synchronisation(device: Device) -> None:
    device.begin(new_streams=True)
    side, kept = Stream(), torch.empty(1000, device=SIM)
    side.wait_stream(current_stream())
    with stream(side):
        kept.add_(1)
    kept.record_stream(side)
    address = kept.data_ptr()
    del kept
    before = torch.empty(1000, device=SIM)
    assert before.data_ptr() != address
    side.synchronize()
    after = torch.empty(1000, device=SIM)
    assert after.data_ptr() == address


def race_names_the_first_owner_after_many_reuses(device: Device) -> None:
    device.begin(new_streams=True)
    output, side, numbers = torch.zeros(64, pin_memory=True), Stream(), torch.ones(64, device=SIM)
    device.name(numbers, "numbers")
    side.wait_stream(current_stream())
    with stream(side):
        output.copy_(numbers, non_blocking=True)
    del numbers
    for _ in range(20):
        torch.empty(64, device=SIM)
    torch.full((64,), 2.0, device=SIM)
    (race,) = device.end().races
    assert race.buffer == "numbers"
    assert race.reused_as is not None


def pinned_memory_is_not_reused_while_a_copy_needs_it(device: Device) -> None:
    device.begin(LAZY)
    target = torch.zeros(8, device=SIM)
    staging = torch.full((8,), 3.0, pin_memory=True)
    address = staging.data_ptr()
    target.copy_(staging, non_blocking=True)
    del staging
    other = torch.full((8,), 4.0, pin_memory=True)
    assert other.data_ptr() != address
    assert target.tolist() == [3.0] * 8
    assert torch.zeros(8, pin_memory=True).data_ptr() == address
    assert device.end().races == ()


def full_device_raises_out_of_memory(device: Device) -> None:
    device.begin()
    with pytest.raises(torch.OutOfMemoryError, match="the simulated device is out of memory"):
        torch.empty(1 << 40, dtype=torch.uint8, device=SIM)


def new_memory_is_filled_with_the_given_byte(device: Device) -> None:
    for schedule in (Schedule(), LAZY):
        device.begin(schedule, Watching(fill=7))
        torch.ones(100, dtype=torch.uint8, device=SIM)
        assert torch.empty(100, dtype=torch.uint8, device=SIM).tolist() == [7] * 100


def random_numbers_depend_on_the_seed_and_not_on_the_schedule(device: Device) -> None:
    drawn = []
    for schedule in (Schedule(), LAZY, Schedule(policy="random", seed=3)):
        device.begin(schedule)
        torch.manual_seed(5)
        generator = torch.Generator(SIM).manual_seed(6)
        numbers = torch.rand(5, device=SIM), torch.randn(3, device=SIM, generator=generator)
        drawn.append([number.tolist() for number in numbers])
    assert drawn[0] == drawn[1] == drawn[2]
    assert drawn[0][0] != torch.rand(5, device=SIM).tolist()


def training_is_bit_identical_to_the_cpu(device: Device) -> None:
    def losses(where: str) -> list[float]:
        torch.manual_seed(0)
        layers = (torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.Flatten(), torch.nn.Linear(24, 2))
        network = torch.nn.Sequential(*layers).to(where)
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
        generator, found = torch.Generator().manual_seed(1), []
        for _ in range(3):
            inputs = torch.randn(5, 3, 8, generator=generator).to(where)
            labels = torch.randint(0, 2, (5,), generator=generator).to(where)
            loss = torch.nn.functional.cross_entropy(network(inputs), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            found.append(float(loss.item()))
        return found

    expected = losses("cpu")
    for schedule in (Schedule(), LAZY, Schedule(policy="random", seed=1)):
        device.begin(schedule)
        assert losses("sim") == expected
        report = device.end()
        assert report.races == ()
        assert not report.forced


def op_registered_for_every_device_is_queued_on_request(device: Device) -> None:
    torch.library.define("specstorm_checks::fill_seven", "(Tensor(a!) out) -> ()")
    torch.library.impl("specstorm_checks::fill_seven", "CompositeExplicitAutograd", _fill_seven)
    device.begin(LAZY, Watching(closed=True))
    numbers = torch.zeros(4, dtype=torch.uint8, device=SIM)
    device.name(numbers, "numbers")
    torch.ops.specstorm_checks.fill_seven(numbers)
    (bypass,) = device.end().bypasses
    assert (bypass.buffer, bypass.access.write) == ("numbers", True)
    assert bypass.access.lines[1].function == "op_registered_for_every_device_is_queued_on_request"
    device.queue_op("specstorm_checks", "fill_seven")
    device.begin(LAZY, Watching(closed=True))
    numbers = torch.zeros(4, dtype=torch.uint8, device=SIM)
    torch.ops.specstorm_checks.fill_seven(numbers)
    assert device.report().counts["run"] == 0
    assert numbers.tolist() == [7, 7, 7, 7]
    assert device.end().bypasses == ()


def _fill_seven(out: torch.Tensor) -> None:
    ctypes.memset(out.data_ptr(), 7, out.numel())


def torch_cuda_is_the_device_within_cuda_names(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    before = torch.cuda.Stream
    with cuda_names():
        side, done = torch.cuda.Stream(), torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() == side
            numbers = torch.ones(4, device=SIM)
        done.record(side)
        torch.cuda.current_stream().wait_event(done)
        assert (numbers + 1).tolist() == [2, 2, 2, 2]
    assert torch.cuda.Stream is before
    assert device.end().races == ()


def accelerator_of_pytorch_is_the_device(device: Device) -> None:
    device.begin(LAZY)
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    numbers, done = torch.ones(4, device=SIM), torch.Event()
    with torch.Stream() as side:
        side.wait_stream(torch.Stream(stream_id=0, device_index=0, device_type=20))
        numbers.add_(1)
        done.record()
    torch.accelerator.synchronize()
    assert done.query()
    assert numbers.tolist() == [2, 2, 2, 2]
    assert 0 < torch.accelerator.memory_allocated() <= torch.accelerator.get_memory_info()[1]
    assert device.end().races == ()


def each_thread_has_its_own_current_stream(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    seen: list[int] = []
    with stream(Stream()):
        thread = threading.Thread(target=lambda: seen.append(current_stream().stream_id))
        thread.start()
        thread.join()
        seen.append(current_stream().stream_id)
    assert seen == [0, 1]


def threads_launch_and_wait_concurrently(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    sums: list[float] = []

    def work() -> None:
        with stream(Stream()):
            total = torch.zeros(4, device=SIM)
            for _ in range(50):
                device.enqueue("add", lambda total: total.add_(1), writes=[total])
                total.mul_(1)
            sums.append(total.sum().item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sums == [200.0] * 4


def every_access_of_the_host_in_a_step_is_detected(device: Device) -> None:
    """A page that was made accessible is protected again at the next call of the device."""
    device.begin(LAZY)
    staging, target = torch.zeros(512, pin_memory=True), torch.zeros(256, device=SIM)
    target.copy_(staging[:256], non_blocking=True)
    staging.numpy()[300] = 1
    staging.numpy()[7] = 1
    torch.zeros(1, device=SIM)
    staging.numpy()[8] = 1
    assert [(race.low, race.first.op) for race in device.end().races] == [(28, "copy_h2d"), (32, "copy_h2d")]


def host_access_next_to_a_copy_in_flight_is_no_race(device: Device) -> None:
    device.begin(LAZY)
    ring, numbers = torch.zeros(4, 16, pin_memory=True), torch.arange(16.0, device=SIM)
    ring[1].copy_(numbers, non_blocking=True)
    ring.numpy()[0] = 5
    ring.numpy()[2:] = np.ones((2, 16))
    assert ring.numpy()[[0, 2, 3]].sum() == 16 * 7
    torch.sim.synchronize()  # type: ignore[attr-defined]
    assert ring[1].tolist() == list(range(16))
    assert device.end().races == ()


def steps_name_tasks_in_reports(device: Device) -> None:
    device.begin(new_streams=True)
    numbers, side = torch.zeros(4, device=SIM), Stream()
    device.name_stream(side, "copies")
    device.step(3)
    with stream(side):
        numbers.add_(1)
    (race,) = device.end().races
    assert (race.first.step, race.second.step, race.second.actor) == (0, 3, "copies")


def equal_lines_are_one_race_with_a_count(device: Device) -> None:
    device.begin(new_streams=True)
    numbers, side = torch.zeros(4, device=SIM), Stream()
    side.wait_stream(current_stream())
    for _, _ in pairwise(range(6)):
        numbers.add_(1)
        with stream(side):
            numbers.sum()
    counts = {(race.first.op, race.second.op): race.count for race in device.end().races}
    assert counts[("add", "sum")] >= 5
    assert len(counts) == 2


def schedule_of_lanes_is_refused(device: Device) -> None:
    with pytest.raises(ValueError, match="supports eager, lazy, random"):
        device.begin(Schedule(policy="lane_order"))


def memory_has_the_tag_of_its_allocation(device: Device) -> None:
    device.begin()
    outer, inner = device.new_tag(), device.new_tag()
    with device.tagging(outer):
        one = torch.ones(5, device=SIM)
        with device.tagging(inner):
            other = torch.ones(7, dtype=torch.int64, device=SIM)
        gone = torch.ones(9, device=SIM)
    untagged = torch.ones(11, device=SIM)
    address = gone.data_ptr()
    del gone
    (bytes_of_one,), (bytes_of_other,) = device.tagged(outer), device.tagged(inner)
    assert (bytes_of_one.dtype, bytes_of_one.numel(), bytes_of_other.numel()) == (torch.uint8, 20, 56)
    bytes_of_other.fill_(1)
    assert other.tolist() == [0x0101010101010101] * 7
    assert one.tolist() == [1] * 5
    assert untagged.tolist() == [1] * 11
    again = torch.ones(9, device=SIM)
    assert again.data_ptr() == address
    assert len(device.tagged(outer)) == 1


def last_writers_of_memory_are_kept_newest_first(device: Device) -> None:
    numbers = _written(device, Watching(writers=True))
    found = [(access.op, access.step) for access in device.writers(numbers)]
    assert found == [("zero_", 1), ("fill_", 0)]
    assert [access.op for access in device.writers(numbers[4:])] == ["zero_"]
    assert [access.op for access in device.writers(numbers[:4])] == ["fill_"]
    (access,) = device.writers(numbers[:4])
    assert access.lines[0].function == "_written"
    # Overwriting all bytes removes the earlier writers; reused memory has no writer yet.
    numbers.add_(1)
    assert [access.op for access in device.writers(numbers)] == ["add"]
    del numbers
    assert device.writers(torch.empty(8, device=SIM)) == ()
    assert device.writers(_written(device, Watching())) == ()


def _written(sim: Device, watching: Watching) -> torch.Tensor:
    """Write eight numbers by one task, and the last four again by a task of the next step."""
    sim.begin(LAZY, watching)
    numbers = torch.empty(8, device=SIM)
    numbers.fill_(1)
    sim.step(1)
    numbers[4:].zero_()
    return numbers


def digests_differ_if_a_race_changes_results(device: Device) -> None:
    def run(schedule: Schedule, read: bool) -> None:
        device.begin(schedule, Watching(digests=True), new_streams=True)
        numbers, side = torch.ones(8, device=SIM), Stream()
        with stream(side):
            doubled = numbers * 2
            # The premature result matters only if the mask selects it.
            chosen = torch.where(torch.full((8,), read, device=SIM), doubled, torch.zeros(8, device=SIM))
            side.synchronize()
        assert chosen.shape == (8,)

    for read in (True, False):
        run(Schedule(), read)
        eager = device.digests()
        run(LAZY, read)
        lazy = device.digests()
        found = first_difference(eager, lazy)
        assert found is not None
        assert (found.task.op, found.what) == ("mul", "reads")
        assert (eager[-1].writes == lazy[-1].writes) is not read
    run(LAZY, True)
    assert first_difference(lazy, lazy) is None


def race_is_harmful_masked_or_benign_by_its_task_digests(device: Device) -> None:
    def run(schedule: Schedule, order: str, factor: float, digests: bool) -> Report:
        device.begin(schedule, Watching(digests=digests, fill=0xA5), new_streams=True)
        device.step(0)
        numbers, side, result = torch.ones(8, device=SIM), Stream(), torch.empty(8, pin_memory=True)
        if order == "waits":
            side.wait_stream(current_stream())
        with stream(side):
            given = (numbers * 2).clamp(max=factor)
            result.copy_(given, non_blocking=True)
            side.synchronize()
        return device.end()

    factors = {"waits": 9.0, "masked": -9.0, "harmful": 9.0}
    for name, factor in factors.items():
        eager_races = run(Schedule(), name, factor, False).races
        runs = []
        for schedule in (Schedule(), LAZY):
            run(schedule, name, factor, True)
            runs.append(device.digests())
        if name == "waits":
            assert eager_races == ()
            continue
        (race,) = eager_races
        assert (race.first.op, race.second.op) == ("fill_", "mul")
        harm = harm_of(race, *runs)
        assert harm.kind == name
        assert harm.first is not None
        assert (harm.first.task.op, harm.first.task.step, harm.first.what) == ("mul", 0, "reads")
        assert (harm.given is not None) is (name == "harmful")
        assert harm_of(race, runs[0], runs[0]) == RaceHarm("benign")
