"""The tests that only `make test-long` runs: they take minutes and cover stable code.

Distributions for every drafter, interpreted kernels compared with the oracle, compilation of every kernel, clusters
that lose a part, pairs of features, the seed changes under every schedule. The number of a test is how many of its
parameters `make test` runs.
"""

LONG = {
    "test_campaign_on_broken_ray_reports_the_cause_and_resumes": 0,
    "test_feature_alone_and_in_pairs_agrees_or_is_refused": 12,
    "test_drawn_chain_works_for_every_vocabulary_size": 1,
    "test_seed_scenario_agrees_under_every_schedule": 0,
    "test_sweep_on_the_interpreter_agrees_under_every_schedule": 0,
    "test_consecutive_verifications_share_no_noise": 1,
    "test_every_kernel_compiles_for_a_gpu": 0,
    "test_floor_is_correct_for_every_limit": 1,
    "test_four_processes_lose_no_data_if_one_is_killed": 0,
    "test_killed_driver_leaves_no_process_and_its_command_completes": 0,
    "test_pictures_name_every_fault_and_way_of_checking": 1,
    "test_first_two_tokens_follow_the_target_law": 1,
    "test_floor_below_dominant_logits_is_found": 1,
    "test_floor_of_flat_row_is_found": 1,
    "test_interpreter_captures_equal_the_numpy_captures": 1,
    "test_looping_triton_twin_equals_definition_in_all_cases": 0,
    "test_twins_decide_like_the_oracle_if_unambiguous": 1,
    "test_floors_with_signed_zeros_nan_and_denormals": 1,
}
