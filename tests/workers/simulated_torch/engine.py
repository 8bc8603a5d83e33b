"""Small asynchronous inference engine in plain PyTorch, with continuous batching.

It samples greedily, and uses only PyTorch, like an engine for a GPU. A decode step processes one token of each batch
row: a prompt token, and after the prompt the output token that the step before sampled, which is still on the device.
At depth 2, the host launches a step before it has received the output tokens of the step before. `mistake` omits one
thing that the engine needs.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import torch

Mistake = Literal["staging reused", "copy waits for nothing", "read before its event", "rows of now"]
MISTAKES: tuple[Mistake, ...] = ("staging reused", "copy waits for nothing", "read before its event", "rows of now")
NUM_ROWS, WIDTH, VOCAB, LENGTH_MAX, STOP = 3, 16, 29, 40, 0
FROM_DEVICE = -1


@dataclass(slots=True)
class Request:
    """A prompt, and the output tokens so far."""

    prompt: tuple[int, ...]
    max_tokens: int
    output: list[int] = field(default_factory=list)
    position: int = 0

    def ended(self) -> bool:
        """Return whether the output is complete."""
        return len(self.output) == self.max_tokens or self.output[-1:] == [STOP]


class Model:
    """One attention layer with a KV cache for each batch row."""

    def __init__(self, device: str) -> None:
        generator = torch.Generator().manual_seed(7)
        self.embedding, self.head, self.query = (
            torch.randn(rows, WIDTH, generator=generator).to(device) for rows in (VOCAB, VOCAB, WIDTH)
        )
        self.cache = torch.zeros(NUM_ROWS, LENGTH_MAX, WIDTH, device=device)
        self.places = torch.arange(LENGTH_MAX, device=device)
        self.rows = torch.arange(NUM_ROWS, device=device)

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the likeliest next token of each batch row."""
        hidden = self.embedding[tokens] + positions[:, None] / LENGTH_MAX
        self.cache[self.rows, positions] = hidden
        scores = torch.einsum("rw,rlw->rl", hidden @ self.query, self.cache)
        weights = scores.masked_fill(self.places > positions[:, None], float("-inf")).softmax(-1)
        return (torch.einsum("rl,rlw->rw", weights, self.cache) @ self.head.T).argmax(-1)


@dataclass(slots=True)
class Step:
    """A step in flight: the request in each batch row, and whether its token is sampled."""

    slot: int
    rows: tuple[Request | None, ...]
    samples: tuple[bool, ...]


class Engine:
    """The engine's loop; up to `depth` steps are in flight."""

    def __init__(self, device: str, depth: int, mistake: Mistake | None = None) -> None:
        self.depth, self.mistake = depth, mistake
        self.model = Model(device)
        self.waiting: deque[Request] = deque()
        self.rows: list[Request | None] = [None] * NUM_ROWS
        self.in_flight: deque[Step] = deque()
        self.num_steps = 0
        self.compute, self.copies = torch.accelerator.current_stream(), torch.Stream(device)
        self.staging = [torch.zeros(2, NUM_ROWS, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        self.staged = [torch.Event(device) for _ in range(2)]
        self.inputs = torch.zeros(2, NUM_ROWS, dtype=torch.int64, device=device)
        self.sampled = torch.zeros(NUM_ROWS, dtype=torch.int64, device=device)
        self.outputs = [torch.zeros(NUM_ROWS, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        self.copied = [torch.Event(device) for _ in range(2)]

    def generate(self, requests: list[Request]) -> list[list[int]]:
        """Serve requests, and return the output tokens of each."""
        self.waiting.extend(requests)
        while self.waiting or any(self.rows) or self.in_flight:
            if self.waiting or any(self.rows):
                self.in_flight.append(self.launch())
            if len(self.in_flight) == self.depth or not any(self.rows):
                self.process(self.in_flight.popleft())
        return [request.output for request in requests]

    def launch(self) -> Step:
        """Fill free batch rows with requests, and launch a step for all rows."""
        for row, held in enumerate(self.rows):
            if held is None and self.waiting:
                self.rows[row] = self.waiting.popleft()
        slot = 0 if self.mistake == "staging reused" else self.num_steps % 2
        self.num_steps += 1
        if self.mistake != "staging reused":
            self.staged[slot].synchronize()
        self.fill(self.staging[slot])
        self.inputs.copy_(self.staging[slot], non_blocking=True)
        self.staged[slot].record(self.compute)
        tokens = torch.where(self.inputs[0] == FROM_DEVICE, self.sampled, self.inputs[0])
        self.sampled = self.model(tokens, self.inputs[1])
        slot = self.num_steps % 2
        if self.mistake != "copy waits for nothing":
            self.copies.wait_stream(self.compute)
        with self.copies:
            self.outputs[slot].copy_(self.sampled, non_blocking=True)
        self.copied[slot].record(self.copies)
        self.sampled.record_stream(self.copies)
        samples = tuple(row is not None and row.position >= len(row.prompt) for row in self.rows)
        return Step(slot, tuple(self.rows), samples)

    def fill(self, staging: torch.Tensor) -> None:
        """Write the token and position of each batch row, and advance the rows."""
        tokens, positions = staging.numpy()
        for row, request in enumerate(self.rows):
            tokens[row], positions[row] = 0, 0
            if request is not None:
                position = request.position
                tokens[row] = request.prompt[position] if position < len(request.prompt) else FROM_DEVICE
                positions[row] = position
                request.position += 1

    def process(self, step: Step) -> None:
        """Append the output tokens of a step to their requests."""
        if self.mistake != "read before its event":
            self.copied[step.slot].synchronize()
        tokens = self.outputs[step.slot].numpy().tolist()
        rows = tuple(self.rows) if self.mistake == "rows of now" else step.rows
        for row, (request, samples) in enumerate(zip(rows, step.samples, strict=True)):
            if request is None or not samples or request.ended():
                continue
            request.output.append(tokens[row])
            if request.ended():
                self.rows[row] = None
