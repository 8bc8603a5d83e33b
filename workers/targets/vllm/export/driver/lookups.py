"""Engine step that checks the tokens in which the drafter `ngram_gpu` searches."""

from vllm.v1.engine.core import EngineCore


def step(engine: EngineCore) -> None:
    """Run one engine step; assert that the drafter's buffer contains each prompt."""
    delivered, executed = engine.step_fn()
    engine.post_step(executed)
    if executed:
        runner = engine.model_executor.driver_worker.worker.model_runner
        for request_id, row in runner.input_batch.req_id_to_index.items():
            prompt = runner.requests[request_id].prompt_token_ids
            tokens = runner.token_ids_gpu_tensor[row, : len(prompt)].tolist()
            assert tokens == prompt, request_id
    for outputs in (delivered or {}).values():
        for output in outputs.outputs:
            engine.outputs[output.request_id].append(output)
