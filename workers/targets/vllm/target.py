"""Target vLLM: the real engine, unmodified, in a process of its own that is kept between traces."""

from scenarios.capabilities import FEATURES, Capabilities
from workers.targets.child.answers import Race
from workers.targets.child.keeper import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.target import VLLM, RunConfig
from workers.targets.vllm.installation import ModelRunner, keeper_of
from workers.targets.vllm.known_races import is_known

# Sizes of vocabularies that models are made for: with fewer tokens there are not as many logprobs as may be asked for.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 128, 130)
FIRST_RUNNER = ModelRunner("v1", VLLM, {"VLLM_USE_V2_MODEL_RUNNER": "0"})


class Vllm(ChildKind):
    """The kind of engine that is vLLM's, as it is installed or laid over that."""

    name = VLLM
    runner = FIRST_RUNNER
    capabilities = Capabilities(
        events=("abort", "preempt", "stall", "reset_prefix_cache"),
        preempt_modes=("deliver",),
        places=("before_schedule",),
        features=tuple(feature for feature in FEATURES if feature != "accept"),
        spec={
            "layers": ("attention", "hybrid"),
            "depth": (2, 1),
            "policy": (),
            "prefix_cache": (),
            "recurrent_cache": (),
            "logprobs_mode": (),
            "sampling": ("standard",),
            "vocab_size": VOCABULARIES,
            "num_speculative_tokens": (),
            "max_num_seqs": (),
            "max_num_batched_tokens": (),
            "long_prefill_token_threshold": (),
            "max_model_len": (),
            "block_size": (32,),
            "num_blocks": (),
            "drafter": ("eagle", "eagle3", "draft_model", "ngram_gpu", "ngram"),
            "drafter_quality": (),
        },
        probes=(
            "admit",
            "resume",
            "discard",
            "discard_while_drafting",
            "preemption",
            "preemption_in_flight",
            "abort",
            "abort_in_flight",
            "stall",
            "empty_step",
            "cache_reset",
            "name_reused",
            "grammar_wait",
            "grammar_drafts",
            "grammar_cut",
        ),
        devices=("sim", "cpu"),
        # Streams are the engine's own; a schedule orders their tasks.
        lanes=("streams",),
        policies=("eager", "lazy", "random"),
        devices_without_lanes=("cpu",),
        planes=("races", "blocks", "books", "counts", "inputs"),
        logit_margin=1e-4,
        words_from_prompt=False,
        # Its front refuses them beside drafts, and its engine takes no notice of them there.
        features_without_drafts=("logit_bias",),
        temperature_max=2.0,
        pool_holds_model=True,
        min_tokens_within_max=True,
        needs_choice=True,
        grammars_end_by_stops=True,
        hybrid_without={
            "num_speculative_tokens": "its kernels for CPUs take no rejected draft back from a state",
        },
    )

    def is_known(self, race: Race) -> bool:
        """Tell whether a race is one of vLLM's known ones."""
        return is_known(race.first.function, race.second.function, race.memory)

    def _keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(config.engine_home, config.engine_path, config.device, self.runner)
