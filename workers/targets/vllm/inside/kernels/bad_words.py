"""NumPy definition of the bad-words kernel in `vllm.v1.worker.gpu.sample.bad_words`."""

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST

MODULE = "vllm.v1.worker.gpu.sample.bad_words"


def apply_bad_words(programs: tuple[int, ...], given: Given) -> None:
    """Mask a bad word's last token where its other tokens precede, including draft tokens."""
    num_rows, num_words = programs[:2]
    for row in range(num_rows):
        state = given.expanded_idx_mapping_ptr[row]
        count = min(num_words, given.num_bad_words_ptr[state])
        if count <= 0:
            continue
        pos, prompt = given.expanded_local_pos_ptr[row], given.prompt_len_ptr[state]
        output = given.total_len_ptr[state] - prompt
        words, ids = state * given.bad_word_offsets_stride, state * given.bad_word_token_ids_stride
        for word in range(count):
            start, end = given.bad_word_offsets_ptr[words + word], given.bad_word_offsets_ptr[words + word + 1]
            prefix = end - start - 1
            if prefix > output + pos:
                continue
            last = given.bad_word_token_ids_ptr[ids + end - 1]
            matches = True
            for number in range(prefix):
                at = output + pos - prefix + number
                if at >= output:
                    actual = given.input_ids_ptr[row - pos + at - output + 1]
                else:
                    actual = given.all_token_ids_ptr[state * given.all_token_ids_stride + prompt + at]
                matches &= given.bad_word_token_ids_ptr[ids + start + number] == actual
            if matches:
                given.logits_ptr[row * given.logits_stride + last] = LOWEST


DEFINITIONS = {"_bad_words_kernel": Definition(apply_bad_words, "92e5cd3111e51ff9")}
