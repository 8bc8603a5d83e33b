"""The tests that `make test` leaves to `make test-long`: they take minutes, and what they test is touched seldom.

Laws of distributions over every draft, kernels under an interpreter beside the oracle, every kernel compiled, clusters
that lose a part, each feature beside every other, the seed changes under every schedule. Of a test's parameters `make
test` runs the first so many.
"""

LONG = {
    "test_a_campaign_whose_ray_lost_a_part_ends_within_a_minute_with_the_cause_and_can_be_gone_on_with": 0,
    "test_a_feature_does_something_alone_and_beside_most_others_and_every_pair_agrees_or_is_refused": 12,
    "test_a_draft_is_drawn_from_a_vocabulary_of_any_size": 1,
    "test_a_seed_scenario_agrees_under_every_schedule": 0,
    "test_a_sweep_on_the_interpreter_agrees_under_every_schedule_it_runs": 0,
    "test_a_verification_uses_no_number_that_the_one_before_read": 1,
    "test_every_kernel_compiles_for_a_gpu_with_the_arguments_of_an_engine": 0,
    "test_every_limit_finds_the_floor_that_is_defined": 1,
    "test_four_processes_of_any_command_lose_nothing_if_one_is_killed": 0,
    "test_killed_driver_leaves_no_process_and_its_command_completes": 0,
    "test_pictures_name_every_fault_and_way_of_checking": 1,
    "test_the_first_two_tokens_follow_the_target": 1,
    "test_the_floor_below_the_largest_is_found_where_these_have_most_of_the_weight": 1,
    "test_the_floor_of_a_flat_line_is_found_wherever_samples_look_for_it": 1,
    "test_the_interpreter_captures_what_the_definitions_do": 1,
    "test_the_triton_twin_that_loops_over_logits_writes_what_is_defined_in_every_case": 0,
    "test_the_twins_decide_as_the_oracle_does_wherever_it_is_not_ambiguous": 1,
    "test_zeros_of_both_signs_are_one_and_what_is_no_number_or_next_to_none_has_its_place": 1,
}
