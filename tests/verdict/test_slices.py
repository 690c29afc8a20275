"""Numbers of slices, and tasks that go from nothing to being paid for within a few steps."""

from __future__ import annotations

from typing import Any

from tiltmeter.verdict.slices import OVERNIGHT, SliceTable, recent_mean


def packed(parts: dict[str, tuple[float, int]]) -> list[Any]:
    means, counts = [mean for mean, _ in parts.values()], [count for _, count in parts.values()]
    return [0.0, len(parts), None, means, "", counts, [[name, 1] for name in parts]]


def visits(table: SliceTable, shares: list[float], name: str = "task", first: int = 0, every: int = 1) -> None:
    for at, share in enumerate(shares):
        table.add(0, first + every * at, {"slices.task.paid": packed({name: (share, 4)})})


def test_rollouts_are_counted_and_reward_and_gold_are_of_the_last_steps() -> None:
    table = SliceTable()
    for step in range(50):
        reward = packed({"a": (float(step >= 30), 6), "b": (0.5, 2)})
        table.add(0, step, {"slices.reward.mean": reward, "slices.gold.mean": packed({"a": (0.25, 3)})})
    assert table.slices["a"].rollouts == 300 and table.slices["b"].rollouts == 100
    assert recent_mean(table.slices["a"].reward) == 1.0
    assert recent_mean(table.slices["a"].gold) == 0.25
    assert recent_mean(table.slices["b"].gold) is None


def test_a_task_that_is_paid_for_all_at_once_is_listed_and_others_are_not() -> None:
    table = SliceTable()
    visits(table, [0.0] * 5 + [0.75, 1.0], "overnight")
    visits(table, [0.0, 0.25, 0.5, 0.75, 1.0], "few before")  # eight rollouts must say that nothing was paid
    visits(table, [0.0] * 5 + [0.25] * 12 + [1.0] * 8, "slowly")
    visits(table, [0.5] * 9, "always")
    visits(table, [0.0] * 9, "never")
    visits(table, [0.0] * 5 + [1.0], "next epoch", every=40)
    assert {name: task.step for name, task in table.solved.items()} == {"overnight": 5, "next epoch": 200}
    assert (table.solved["overnight"].before, table.solved["overnight"].since) == (0.0, 0.875)


def test_it_has_to_happen_within_a_few_steps() -> None:
    table = SliceTable()
    visits(table, [0.0, 0.0, 0.25, 1.0], every=OVERNIGHT + 1)
    assert not table.solved


def test_a_rewind_forgets_what_was_solved_after_it_and_late_rows_of_the_old_attempt_are_left_out() -> None:
    table = SliceTable()
    visits(table, [0.0] * 5 + [1.0])
    assert table.solved
    table.add(1, 3, {"slices.task.paid": packed({"task": (0.0, 4)})})
    assert not table.solved
    table.add(0, 6, {"slices.task.paid": packed({"other": (0.0, 4)})})
    assert "other" not in table._tasks
