"""An engine step that records the runner's counts of computed tokens."""

from vllm.v1.engine.core import EngineCore


def step(engine: EngineCore) -> None:
    """Run one engine step; record the runner's counts of computed tokens."""
    delivered, executed = engine.step_fn()
    engine.post_step(executed)
    if executed:
        batch = engine.model_executor.driver_worker.worker.model_runner.input_batch
        engine.counts += batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
    for outputs in (delivered or {}).values():
        for output in outputs.outputs:
            engine.outputs[output.request_id].append(output)
