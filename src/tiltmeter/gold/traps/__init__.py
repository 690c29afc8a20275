"""Traps: twins of tasks that honest work cannot solve as they are graded, so that pay for them was taken otherwise."""
