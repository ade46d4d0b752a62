"""Which tests each command runs: `make check` a first look, `make test` every law and part, `make test-long` all of it.

`tests/conftest.py` asks `selected` with the tier that the command names (`pytest --tier fast`, `test` or `long`). With
no tier everything runs but what is marked `long`, so that whoever runs one file runs all of it. `laws/test_tiers.py`
holds that no law and no part is left out of a tier, and that every test named here exists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import settings

Tier = Literal["fast", "test", "long"]
TIERS: tuple[Tier, ...] = ("fast", "test", "long")

# Products of like cases: `make test` takes each value of each argument at least once, in turn with the values of the
# other arguments; `make test-long` takes every combination.
SPANNED = frozenset(
    {
        "test_abort",
        "test_a_hostile_description_touches_nothing",
        "test_once",
        "test_realise",
        "test_a_bad_message_is_refused_by_its_receiver",
        "test_words_of_every_size_are_carried_bit_by_bit",
        "test_text_and_marks_stand_out",
    }
)

# Of cases that hypothesis draws, and of repetitions inside a test (`repeats`), each tier takes this share; `make
# test-long`, and a file run by itself, all of them.
DRAWN: Mapping[str | None, float] = {"fast": 0.1, "test": 0.5}
LEAST_DRAWN = 10

# Long lists of like cases: `make test` takes so many of them, spread evenly over the list; `make test-long` all.
SAMPLED: Mapping[str, int] = {
    "test_source": 1,
    # Every pipeline is carried as bytes and through services; these are a process for each party besides.
    "test_through_processes": 12,
    "test_a_project_passes_its_own_tests": 1,
    "test_a_party_that_is_killed_goes_on_to_the_same_model": 2,
    "test_permutation": 3,
    "test_every_entry_is_whole": 4,
    "test_every_table_is_whole": 2,
    "test_a_trial_gives_plain_rows_that_read_alike": 2,
    "test_small_networks_with_dropout_are_accepted_whatever_their_weights": 1,
    "test_attacks_that_know_nothing_score_at_one_in_n": 1,
    "test_each_is_audited": 1,
    "test_a_fresh_process_answers_the_same_and_is_not_told_the_truth": 2,
    "test_the_example_as_other_servers_see_it": 1,
    "test_an_audit_that_was_stopped_ends_as_one_that_was_not": 1,
    "test_through_services_with_one_client_missing": 2,
    "test_a_plan_as_it_is_printed_is_accepted_to_its_last_round": 2,
    "test_googles_accountant_says_the_same": 2,
    "test_a_round_of_two_servers_is_measured_whole": 2,
    "test_agreements_through_services_with_one_client_missing": 1,
    "test_newcomers_through_services": 1,
    "test_a_client_that_is_killed_while_it_agrees_goes_on_where_it_was": 2,
    "test_a_server_that_is_killed_while_clients_agree_goes_on_where_it_was": 2,
    "test_a_restored_backup_sends_nothing_more": 1,
    "test_through_flower": 4,
    "test_clients_that_must_be_there_together_are_refused": 1,
}

# Seconds of training or of starting processes, to show at length what a lighter test beside it shows too.
HEAVY = frozenset(
    {
        "test_every_timed_ledger_is_whole",
        "test_training_on_real_messages_improves",
        "test_the_experiment_finds_nothing_in_a_fixed_cohort",
        "test_the_example_under_rain_learns",
        "test_the_example_in_tiers_ends_well",
        "test_a_board_trains_once_and_alike_in_several_processes",
        "test_runs_in_several_processes_give_the_same",
        "test_a_defences_result_does_not_depend_on_the_others",
        "test_an_outcome_compares_run_by_run",
        "test_another_task_is_trained_again",
        # Table 11 is whole, and what is counted outside Table 12, in the gate.
        "test_table_12_is_whole",
        "test_it_is_plain_data_and_the_same_from_the_same_seed",
        "test_controls_are_mounted_on_the_first_round_only",
        "test_other_pictures_of_the_adversary_are_not_trained_again",
        "test_the_learned_denoiser_comes_close_to_the_linear_one_where_that_is_best",
        "test_a_protocol_that_is_one_of_those_compared_stands_once",
        "test_protocols_that_do_not_fit_the_task_are_left_out_with_the_reason",
        "test_arms_that_train_alike_train_once",
        "test_the_same_seeds_give_the_same_report",
        "test_clusters_have_their_purity_and_the_baselines_beside_them",
        "test_what_only_the_server_sees_otherwise_is_trained_once",
        # That linking layers makes a client's gradient of them is in the gate.
        "test_a_row_as_it_came_out_of_a_layer_shuffle_is_no_gradient",
        # A run tells TensorBoard through the command line in the gate.
        "test_tensorboard_has_each_number_of_each_round",
    }
)

# `make check` takes all cases of these: between them they build every part and play every pipeline once.
WHOLE_IN_CHECK = frozenset(
    {
        "test_every_part_is_described_with_its_fields",
        "test_replay",
    }
)

# Tests of laws that start processes of their own, or wait for somebody who does not come: `make check` leaves them out;
# each law has another test there.
SLOW_LAWS = frozenset(
    {
        "test_a_client_that_breaks_off_is_complained_about_and_left_out",
        "test_a_client_that_is_gone_after_it_signed_remembers_that_it_did",
        "test_a_round_that_too_few_can_agree_on_is_passed_over_where_it_may_be",
        "test_a_server_that_is_killed_while_clients_agree_goes_on_where_it_was",
        "test_agreements_through_services_with_one_client_missing",
        "test_newcomers_through_services",
        "test_the_last_rule_is_handed_on_through_services",
        "test_through_services_with_one_client_missing",
        "test_a_process_that_dies_is_an_error_and_stays_one",
        "test_a_question_is_added",
        "test_a_question_that_is_cut_off_ends_the_process_quietly",
        "test_processes_end_when_the_experiment_does",
        "test_which_process_answers_and_in_which_order_changes_nothing",
    }
)

# Tests that open a file and take seconds: `make check` takes the next one of the file in their place.
SLOW_OPENINGS = frozenset(
    {
        "test_a_full_disk_shows_the_table_first_and_then_names_the_file_and_the_remedy",
        "test_any_file_of_an_audit_may_fail_after_the_table",
        "test_attacks_find_a_network_beside_its_description",
        "test_audit_fast_gives_one_object_and_a_report",
        "test_audit_for_people_prints_a_matrix_and_the_verdict",
        "test_backdoors_and_flipped_labels_break_a_plain_mean",
        "test_disaggregation",
        "test_every_attack_is_shown_when_asked_for",
        "test_linear_denoising_reaches_the_error_that_theory_gives",
        "test_table_11_is_whole",
        "test_table_12_is_whole",
        "test_the_own_protocol_is_attacked_by_those_who_are_named",
        "test_undefended_updates_describe_their_clients_and_link_rounds",
        "test_what_residue_sums_tell",
    }
)


_tier: Tier | None = None


def run_as(tier: Tier | None) -> None:
    """Remember which tier this is, before any test is imported."""
    global _tier
    _tier = tier
    # For tests that name no count.
    settings.register_profile("tier", examples())
    settings.load_profile("tier")


def examples(count: int = 100) -> settings:
    """So many cases drawn by hypothesis, in the longest tier; none has a deadline."""
    share = DRAWN.get(_tier, 1.0)
    return settings(max_examples=min(count, max(LEAST_DRAWN, round(share * count))), deadline=None)


def repeats(count: int, least: int) -> int:
    """How often a test does the same again: a tier's share, as of cases that are drawn, and `least` in each."""
    return min(count, max(least, round(DRAWN.get(_tier, 1.0) * count)))


@dataclass(frozen=True)
class Case:
    """One test with one choice of arguments: where it lies, what it is called, what it is given."""

    file: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()

    @property
    def test(self) -> str:
        """The test's own name, wherever its file lies."""
        return self.function.rsplit("::", 1)[-1]

    @property
    def is_law(self) -> bool:
        """Whether it tests a law."""
        return "/laws/" in f"/{self.file}"


def selected(cases: Sequence[Case], tier: Tier | None) -> list[bool]:
    """Which of these cases a tier runs; `None`: all but what is marked long."""
    if tier == "long":
        return [True] * len(cases)
    short = ["long" not in case.marks for case in cases]
    if tier is None:
        return short
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, case in enumerate(cases):
        if short[number]:
            groups[case.file, case.function].append(number)
    chosen = set[int]()
    seen_files = set[str]()
    for (file, _), numbers in groups.items():
        of_one = [cases[number] for number in numbers]
        kept = _in_check(of_one, file not in seen_files) if tier == "fast" else _in_test(of_one)
        if kept:
            seen_files.add(file)
        chosen.update(numbers[at] for at in kept)
    return [number in chosen for number in range(len(cases))]


def _in_check(cases: Sequence[Case], opens_file: bool) -> Iterable[int]:
    """The first case of every law's tests, and of the first test of every file of a part that is not known to be slow.

    Claims about whole commands and the browser wait for `make test`: they start processes.
    """
    name = cases[0].test
    if name in WHOLE_IN_CHECK:
        return range(len(cases))
    slow = name in SLOW_LAWS | SLOW_OPENINGS | SPANNED | HEAVY or name in SAMPLED
    wanted = cases[0].is_law and name not in SLOW_LAWS | HEAVY
    return [0] if wanted or (opens_file and not slow and "/unit/" in cases[0].file) else []


def _in_test(cases: Sequence[Case]) -> Iterable[int]:
    name = cases[0].test
    if name in HEAVY:
        return []
    if name in SPANNED:
        return spanning(cases)
    if name in SAMPLED:
        return evenly(len(cases), SAMPLED[name])
    return range(len(cases))


def evenly(count: int, wanted: int) -> list[int]:
    """So many places out of a list, spread over it."""
    wanted = min(count, wanted)
    return sorted({place * count // wanted for place in range(wanted)})


def spanning(cases: Sequence[Case]) -> list[int]:
    """Places of cases that show each value of each argument at least once.

    Along the longest argument the others take turns, so that as many pairs are met as there are cases; what a product
    with holes leaves out is added.
    """
    values: dict[str, list[str]] = defaultdict(list)
    spelled = [{name: repr(value) for name, value in case.arguments.items()} for case in cases]
    for row in spelled:
        for name, value in row.items():
            if value not in values[name]:
                values[name].append(value)
    if not values:
        return list(range(len(cases)))
    longest = max(values, key=lambda name: len(values[name]))
    kept = []
    for place, row in enumerate(spelled):
        turn = values[longest].index(row[longest])
        if all(values[name].index(value) == turn % len(values[name]) for name, value in row.items()):
            kept.append(place)
    met = {pair for place in kept for pair in spelled[place].items()}
    for place, row in enumerate(spelled):
        if not met.issuperset(row.items()):
            kept.append(place)
            met.update(row.items())
    return sorted(kept)
