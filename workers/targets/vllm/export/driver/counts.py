"""Engine step that records the model runner's computed-token counts."""

from vllm.v1.engine.core import EngineCore


def step(engine: EngineCore) -> None:
    """Run one engine step; record the computed-token count of each batch row."""
    delivered, executed = engine.step_fn()
    engine.post_step(executed)
    if executed:
        batch = engine.model_executor.driver_worker.worker.model_runner.input_batch
        engine.counts += batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
    for outputs in (delivered or {}).values():
        for output in outputs.outputs:
            engine.outputs[output.request_id].append(output)
