"""Tests that `make quick` skips; the others take less than half a minute in two processes.

If a test has parameters (scenarios, faults, flips, ops, mistakes), only the first one runs; a file or test is
skipped if it takes more than a second or two. `make test` runs everything.
"""

QUICK_PARAMETERS = 1

# These start a Ray, load PyTorch, run interpreted kernels, or compare whole processes.
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

# These search many traces or programs, or repeat what another quick test does once.
SLOW = {
    "test_equivalent_mutant_is_not_found",
    "test_generated_trace_is_valid_without_any_one_event",
    "test_fault_changes_one_part_of_one_engine_only",
    "test_host_counts_before_staging_need_one_staging_slot",
    "test_hunt_resumes_from_its_snapshot_and_refuses_another_corpus",
    "test_a_known_trace_finds_its_bug_again_first",
    "test_verdict_names_missing_wait",
    "test_process_without_engine_cannot_import_one",
    "test_ordered_program_has_the_same_result_under_every_policy",
    "test_program_without_race_has_same_result_under_every_policy",
    "test_race_exactly_if_no_path_orders_conflicting_accesses",
    "test_random_trace_is_valid_with_one_to_seven_requests",
    "test_random_trace_is_the_same_for_any_hash_seed",
    "test_shard_traces_are_the_same_in_new_process",
    "test_dumps_and_loads_keep_trace_and_explicit_trace",
    "test_variant_is_valid_and_kept_in_yaml",
    "test_redundant_wait_is_not_needed_by_any_schedule",
    "test_accepted_counts_moved_in_flight_are_a_race_first",
    "test_eager_run_reports_each_missing_wait_except_listed",
    "test_deleted_flat_events_do_not_change_the_others",
    "test_interpret_of_any_numbers_is_a_valid_trace",
    "test_wrong_backup_tokens_are_found_under_every_schedule",
    "test_block_verification_with_single_draft_residual_is_detected",
    "test_loads_of_damaged_yaml_raises_only_scenario_error",
    "test_both_host_waits_for_counts_are_needed",
    "test_bit_flips_outside_every_domain_change_nothing",
    "test_i1_holds_after_every_step_of_random_traces_in_the_engine",
    "test_no_text_in_a_finding_can_break_out_of_the_comment",
    "test_faults_of_one_part_have_different_signatures",
    "test_outputs_differ_with_logprobs_of_another_request",
    "test_random_traces_vary_every_switch_and_prompt_edge",
    "test_removed_request_does_not_change_other_explicit_events",
    "test_requests_that_preempt_each_other_forever_are_stuck",
    "test_ops_keep_the_oracles_drafts_just_outside_ambiguity",
    "test_clean_engine_has_no_race",
    "test_oracle_expects_the_same_in_a_process_without_engine",
    "test_reported_race_is_the_same_under_every_policy",
    "test_two_sample_g_test_fails_at_nominal_rate",
    "test_worker_results_are_independent_of_job_order",
    "test_checker_ignores_captured_values_outside_domains",
    "test_i1_holds_after_every_step_of_random_traces_in_the_oracle",
}
