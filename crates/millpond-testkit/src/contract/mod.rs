//! The contract: what every store must keep, one function for each scenario, run by a macro in the crate of each
//! store. A `C` number is that of the contract suite; a name without one is a rule below the engine.
//!
//! A scenario gets a fresh store and queues that nobody else has. It waits for what it expects and never for a
//! time, and asserts sets and counts, never a sequence.

pub mod batches;
pub mod crashes;
pub mod delay;
pub mod delivery;
pub mod effects;
pub mod field_reports;
pub mod history;
pub mod hooks;
pub mod lease;
pub mod limits;
pub mod listeners;
pub mod lists;
pub mod operations;
pub mod plain_sql;
pub mod publishing;
pub mod retry;
pub mod stop;
pub mod transactions;

use std::sync::Arc;

use millpond_core::settle::Verdict;
use millpond_core::store::{BoxFuture, Settled};
use millpond_engine::job::Job;

use crate::gate::Gate;
use crate::recorder::Recorder;

/// Recorded, and nothing was done before.
fn applied() -> Settled {
    Settled::Applied { done_anyway: Vec::new() }
}

/// A handler that waits at a gate and then acknowledges.
fn gated_handler(
    seen: &Arc<Recorder<u32>>,
    gate: &Arc<Gate>,
) -> impl Fn(Job<u32>) -> BoxFuture<'static, Verdict> + Send + Sync + use<> {
    let (recorder, closed) = (Arc::clone(seen), Arc::clone(gate));
    move |job| {
        let (visit, closed) = (recorder.enter(&job), Arc::clone(&closed));
        Box::pin(async move {
            closed.pass().await;
            drop(visit);
            Verdict::Ack
        })
    }
}

/// A test for each scenario, on a fresh [`Provider`](crate::bench::Provider) each. The crate needs `tokio` with
/// its macros.
#[macro_export]
macro_rules! contract {
    ($provider:expr) => {
        $crate::contract_tests! { $provider;
            delivery {
                c001_three_messages_arrive_and_no_other
                c003_a_body_equals_its_json_form
                c004_the_smallest_and_the_largest_body_are_kept_byte_for_byte
                c005_a_body_that_is_too_large_refuses_its_whole_batch
                c006_the_longest_name_round_trips
                c007_poison_dies_with_its_bytes_and_holds_nothing_up
                c008_a_thousand_messages_pass_four_slots
                c009_a_queue_without_order_delivers_a_set
            }
            retry {
                c010_a_second_delivery_succeeds
                c011_exhausted_after_two_attempts
                c015_a_panic_is_a_failed_attempt
                c015_an_aborted_task_is_a_failed_attempt
                c015_a_handler_that_takes_too_long_is_dropped
                c015_a_handler_that_stops_when_told_has_failed_too
                c015_a_blocking_handler_is_settled_without_it
                c016_attempts_follow_the_backoff_list
                c017_three_deaths_alone_spend_three_attempts
                c018_without_a_hook_it_is_a_dead_letter_and_a_count
                only_a_failed_attempt_is_counted
                a_return_is_served_before_the_backlog
                a_second_settlement_under_one_lease_changes_nothing
            }
            lease {
                c027_no_message_has_two_live_leases
                c028_a_dead_nodes_message_is_delivered_by_another
                c029_a_long_async_handler_keeps_its_message
                c029_long_blocking_handlers_keep_their_messages
                c030_who_wakes_up_late_settles_nothing
                c030_a_token_is_refused_after_the_takeover
                two_reclaims_at_once_take_each_claim_once
                a_renewed_lease_is_not_taken
                an_ended_worker_is_reclaimed_at_once
                c031_a_lease_lost_alone_spends_the_last_attempt
                c031_leases_lost_in_company_are_not_charged
                suspects_are_bisected_until_the_killer_is_alone
                a_worker_takes_a_single_suspect_with_empty_hands
                c032_a_backlog_survives_a_restart_of_everything
                the_highest_claim_is_kept_as_the_cursor
                a_committed_effect_is_done_whatever_the_verdict
            }
            limits {
                c024_an_exclusive_queue_runs_one_after_the_other_over_two_nodes
                c025_an_exclusive_queue_holds_no_other_up
                c026_exclusive_and_a_limit_on_how_many_are_refused_together
                exclusive_is_raised_by_declarations_and_lowered_by_an_operator
                room_is_what_is_not_in_hand
                racing_leases_never_pass_the_limit
                never_more_run_than_the_queue_says
                an_exclusive_queue_gives_one_to_who_may_run_more
                what_was_cancelled_takes_no_room
                a_rate_gives_so_many_in_a_period
                workers_wait_for_a_rate
            }
            transactions {
                a_unit_of_work_delivers_what_it_commits_and_nothing_else
                a_node_without_a_worker_relays_what_it_commits
                hooks_run_once_with_the_commit
                a_fast_queue_is_sent_to_after_the_commit
                a_queue_that_requires_a_transaction_is_refused_outside
                a_scope_sends_all_or_nothing
                a_drivers_transaction_delivers_what_it_commits
                a_commit_is_known_of_after_its_messages_were_moved
                a_drivers_transaction_keeps_every_option
                without_a_transaction_nothing_is_written
                open_transactions_wait_for_each_other_for_one_key_only
                what_a_commit_says_is_true_after_a_statement_has_failed
                an_adopted_transaction_delivers_what_its_unit_commits
                what_an_adopted_transaction_says_is_true_too
                what_is_done_in_a_test_root_is_undone_and_its_units_commit
            }
            crashes {
                crash_01_before_the_commit_nothing_is_stored_and_nothing_sent
                crash_02_after_the_commit_any_node_moves_it
                crash_04_a_move_to_the_log_is_done_or_not
                crash_07_a_relay_that_dies_leaves_the_rest_to_others
                crash_08_a_send_without_an_answer_may_be_repeated
                crash_11_without_a_store_a_send_says_so_and_a_buffer_keeps_its_messages
                crash_13_the_rows_decide_what_an_unknown_commit_was
                crash_14_what_a_send_has_answered_survives_a_restart
            }
            effects {
                each_message_has_one_effect_whatever_is_delivered_twice
            }
            publishing {
                m1_racing_appenders_leave_no_gap
                c041_two_relays_move_each_row_once
            }
            plain_sql {
                a_message_of_plain_sql_is_delivered_as_it_was_sent
                what_plain_sql_commits_is_delivered_and_nothing_else
                plain_sql_says_when_a_message_is_due
                plain_sql_is_refused_with_the_codes_of_a_send
                plain_sql_and_code_hold_the_same_dedup_keys
            }
            history {
                the_run_log_adds_up
                trends_add_up_by_the_quarter
                retention_takes_everything_in_chunks
            }
            lists {
                dead_letters_are_open_until_they_are_sent_again
                like_failures_are_one_group
                the_outbox_is_listed_as_it_is_due
                messages_are_found_by_what_they_carry
                a_cursor_is_stable_while_rows_arrive
            }
            batches {
                a_batch_handler_gets_messages_together_each_with_its_own_verdict
                a_batch_that_breaks_down_comes_one_by_one_and_only_the_culprit_pays
                what_a_batch_decided_before_its_time_was_up_stands
                two_messages_of_one_send_have_two_budgets_in_a_batch
                poison_in_a_batch_dies_alone
            }
            hooks {
                every_drop_of_a_worker_calls_its_hook
                what_a_reclaim_or_a_person_drops_calls_the_hook
                a_failing_hook_brings_nothing_back
                a_hook_whose_process_dies_is_called_again
                a_hook_is_pending_for_one_node_at_a_time
                two_messages_of_one_send_are_two_drops
            }
            listeners {
                c046_only_the_node_with_a_handler_is_called
            }
            delay {
                c049_a_delay_ends_on_time
            }
            operations {
                a_paused_queue_begins_nothing_until_it_is_resumed
                a_pause_ends_by_itself_and_the_other_still_holds
                a_pause_survives_a_restart
                a_cancelled_message_is_never_delivered
                a_running_job_is_told_to_stop
                a_job_that_acknowledges_after_a_cancel_is_done
                a_cancelled_message_lives_again_by_a_redrive
                what_waits_can_be_made_due
                a_running_worker_follows_the_settings
                a_changed_number_of_attempts_counts_at_once
                a_failure_has_a_class
                a_purge_drops_what_waits_and_not_what_runs
                a_worker_does_what_an_operator_wishes
                every_change_is_a_line_of_the_audit
            }
            stop {
                c054_a_handler_that_ends_in_time_is_acknowledged
                c055_a_handler_that_ignores_its_token_is_put_back
                c055_a_second_signal_tells_handlers_to_stop_at_once
                a_dropped_worker_lets_everything_go
                c056_a_store_that_is_held_up_loses_nothing
                c056_a_restart_under_load_loses_nothing
                c056_live_workers_renew_first_when_the_store_is_back
            }
            field_reports {
                br_006_a_delay_longer_than_the_lease_runs_once
                br_008_twenty_thousand_due_at_once_are_moved_in_parts
                br_008_twenty_thousand_lost_at_once_come_back
                br_010_five_attempts_are_five_and_no_sixth_comes
                br_012_a_delay_beyond_32_bits_is_exact_to_the_millisecond
                br_014_a_retry_needs_no_key_and_holds_nobody_up
                br_015_a_failed_job_gets_its_retry_beside_a_waiting_sibling
                br_042_a_body_is_kept_whole_or_refused
                br_053_refusing_single_messages_to_the_limit_leaves_a_queue_that_serves
                br_056_a_batch_with_one_key_is_one_message
                br_057_a_window_is_a_time_from_the_first_send
                br_059_a_batch_that_is_repeated_stores_what_is_new
                br_060_an_old_job_that_is_deleted_frees_no_key_of_a_newer_one
                br_108_what_a_stop_interrupts_is_never_at_its_end
                br_110_a_nul_is_kept_in_a_body_and_refused_elsewhere_by_name
                br_111_an_error_text_with_a_nul_ends_its_job
                br_116_an_error_text_of_any_size_is_cut_to_the_limit
                br_118_a_number_is_found_as_it_was_sent
                br_130_no_due_time_is_stored_that_never_comes
                br_132_a_key_is_held_for_its_window_however_often_it_is_sent
                br_135_a_delayed_message_keeps_its_class
                br_136_a_retry_keeps_its_class
                br_159_a_stop_ends_in_time_whatever_the_handler_does
                br_160_half_a_surrogate_pair_is_refused_and_a_backslash_is_a_backslash
                br_162_numbers_are_the_bytes_that_were_sent
                br_168_what_was_put_off_is_served_first_when_it_is_due
                br_184_a_send_that_races_with_the_end_of_a_job_is_not_forgotten
                br_185_a_stale_worker_finishes_nothing
                br_189_what_is_said_about_a_success_never_undoes_it
                br_195_of_two_completions_one_is_accepted
                br_196_who_dies_while_it_rescues_is_rescued_by_others
                br_197_jobs_that_hang_starve_nobody_and_die
                br_198_a_job_three_leases_long_starts_once
                br_201_eight_workers_and_two_senders_never_see_a_locked_store
                br_215_behind_a_dead_holder_nothing_piles_up
            }
        }
    };
}

/// The tests of [`contract!`](crate::contract!), from chapters and names.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_tests {
    ($provider:expr; $($chapter:ident { $($scenario:ident)* })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread")]
            async fn $scenario() {
                let bench = $crate::bench::Bench::new($provider);
                $crate::contract::$chapter::$scenario(&bench).await;
                bench.close().await;
            }
        )*)*
    };
}
