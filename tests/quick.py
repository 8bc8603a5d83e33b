"""The tests of `make quick`, said by what it leaves out: the rest takes less than half a minute in two processes.

Of each test with parameters (a scenario, a fault, a flip, an op, a mistake each) the first is run; a whole file or
test is left out when it takes more than a second or two. `make test` runs everything.
"""

QUICK_PARAMETERS = 1

# Start a Ray, load PyTorch, run kernels under an interpreter, or compare whole processes.
NOT_QUICK = (
    "benchmarks",
    "cluster/campaigns/hunt/test_planner.py",
    "cluster/cli",
    "cluster/dispatch/test_chaos.py",
    "cluster/dispatch/test_nodes.py",
    "cluster/dispatch/test_pool.py",
    "cluster/jobs",
    "cluster/reports/page/test_browser.py",
    "cluster/reports/test_fault_page.py",
    "cluster/statistics/test_fault_table.py",
    "test_workflows.py",
    "workers/faults/test_depth_fault.py",
    "workers/kernels/test_distribution.py",
    "workers/kernels/triton",
    "workers/lanes/test_cuda.py",
    "workers/run/test_determinism.py",
    "workers/run/test_distribution_check.py",
    "workers/shrink/test_shrinker.py",
    "workers/simulated_torch",
    "workers/targets/child/test_families.py",
    "workers/targets/child/test_hostile.py",
    "workers/targets/child/test_racer.py",
    "workers/targets/test_devices.py",
)

# Search many traces or programs, or repeat what another quick test does once.
SLOW = {
    "test_a_change_that_no_engine_may_notice_is_not_found",
    "test_a_drawn_trace_is_valid_and_so_is_every_trace_with_one_event_less",
    "test_fault_changes_one_part_of_one_engine_only",
    "test_a_host_that_waits_for_counts_before_it_stages_needs_one_staging_slot",
    "test_hunt_resumes_from_its_snapshot_and_refuses_another_corpus",
    "test_a_known_trace_finds_its_bug_again_first",
    "test_a_missing_wait_is_in_the_verdict",
    "test_process_without_engine_cannot_import_one",
    "test_ordered_program_has_the_same_result_under_every_policy",
    "test_a_program_without_a_race_ends_the_same_under_every_policy",
    "test_a_race_is_reported_exactly_where_no_path_orders_two_conflicting_accesses",
    "test_a_random_trace_is_valid_and_has_one_to_seven_requests",
    "test_a_seed_gives_the_same_trace_in_a_fresh_process_with_another_hash_seed",
    "test_a_shard_gives_the_same_traces_in_a_process_that_has_loaded_nothing_else",
    "test_a_trace_and_its_explicit_form_survive_yaml",
    "test_a_variant_of_any_trace_is_valid_and_reads_back_from_yaml_as_it_was",
    "test_a_wait_that_is_listed_as_redundant_is_missed_by_no_trace_and_no_schedule",
    "test_accepted_counts_moved_in_flight_are_a_race_first",
    "test_an_eager_run_reports_every_wait_that_is_missing_but_those_listed",
    "test_any_flat_events_may_be_deleted_and_distinct_ones_keep_their_meaning",
    "test_any_numbers_make_a_valid_trace",
    "test_wrong_backup_tokens_are_found_under_every_schedule",
    "test_block_verification_with_single_draft_residual_is_detected",
    "test_damaged_yaml_is_a_trace_or_a_scenario_error_and_nothing_else",
    "test_each_of_the_two_places_where_the_host_waits_for_counts_is_needed",
    "test_flips_outside_every_domain_change_nothing",
    "test_i1_holds_after_every_step_of_random_traces_in_the_engine",
    "test_no_text_in_a_finding_can_break_out_of_the_comment",
    "test_faults_of_one_part_have_different_signatures",
    "test_outputs_show_the_logprobs_of_another_request",
    "test_random_traces_differ_in_every_switch_and_reach_every_edge_of_a_prompt",
    "test_removing_a_request_leaves_the_explicit_form_of_the_others",
    "test_requests_that_take_each_others_blocks_for_ever_are_stuck",
    "test_ops_keep_the_oracles_drafts_just_outside_ambiguity",
    "test_the_clean_engine_has_no_race",
    "test_oracle_expects_the_same_in_a_process_without_engine",
    "test_the_race_reported_is_the_same_under_every_policy",
    "test_two_samples_of_one_law_fail_as_often_as_a_test_says",
    "test_what_a_worker_says_is_the_same_in_any_order_and_whatever_it_did_before",
    "test_what_is_captured_outside_a_domain_is_not_compared",
    "test_i1_holds_after_every_step_of_random_traces_in_the_oracle",
}
