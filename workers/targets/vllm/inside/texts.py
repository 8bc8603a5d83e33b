"""Text of a request with stop words, as a server makes it of tokens: vLLM's detokenizer finds the word that ends it."""

from typing import Any

from workers.targets.child.answers import Delivery
from workers.targets.child.inside.tokenizer import token_of


class Text:
    """The text of one request so far; `has_stopped` if a word ended it of which its engine does not know."""

    def __init__(self, tokenizer: Any, request: Any) -> None:
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer  # noqa: PLC0415

        self._detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
        self.has_stopped = False

    def told(self, delivery: Delivery) -> Delivery:
        """Return what a client sees of what an engine delivers: the tokens of the text up to the word that ends it."""
        reason = delivery.finish_reason
        word = self._detokenizer.update(list(delivery.tokens), reason == "stop")
        self.has_stopped = word is not None and reason is None
        reason = "stop" if word is not None else reason
        text = self._detokenizer.get_next_output_text(finished=reason is not None, delta=True)
        width = len(delivery.logprobs) // max(1, len(delivery.tokens))
        told = {
            "tokens": tuple(map(token_of, text)),
            "finish_reason": reason,
            "logprobs": delivery.logprobs[: width * len(text)],
        }
        return delivery.model_copy(update=told)
