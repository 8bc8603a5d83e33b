"""NumPy definition of the bad-words kernel in `vllm.v1.worker.gpu.sample.bad_words`."""

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST

MODULE = "vllm.v1.worker.gpu.sample.bad_words"


def apply_bad_words(programs: tuple[int, ...], args: Given) -> None:
    """Mask the last token of each bad word if the preceding tokens, with drafts, match it."""
    num_rows, num_words = programs[:2]
    for row in range(num_rows):
        state = args.expanded_idx_mapping_ptr[row]
        count = min(num_words, args.num_bad_words_ptr[state])
        if count <= 0:
            continue
        pos, prompt = args.expanded_local_pos_ptr[row], args.prompt_len_ptr[state]
        output = args.total_len_ptr[state] - prompt
        words, ids = state * args.bad_word_offsets_stride, state * args.bad_word_token_ids_stride
        for word in range(count):
            start, end = args.bad_word_offsets_ptr[words + word], args.bad_word_offsets_ptr[words + word + 1]
            prefix = end - start - 1
            if prefix > output + pos:
                continue
            last = args.bad_word_token_ids_ptr[ids + end - 1]
            matches = True
            for number in range(prefix):
                at = output + pos - prefix + number
                if at >= output:
                    actual = args.input_ids_ptr[row - pos + at - output + 1]
                else:
                    actual = args.all_token_ids_ptr[state * args.all_token_ids_stride + prompt + at]
                matches &= args.bad_word_token_ids_ptr[ids + start + number] == actual
            if matches:
                args.logits_ptr[row * args.logits_stride + last] = LOWEST


DEFINITIONS = {"_bad_words_kernel": Definition(apply_bad_words, "92e5cd3111e51ff9")}
