"""Gold for agents: the task's own tests, run again on the final workspace of an episode, and decided outside of it.

`settings.py` says what is graded, `workspace.py` keeps what an agent left, `task.py` has the pristine tree,
`blind_tests.py` takes the expected values out of its tests, `grading.py` runs them in a sandbox and decides, and
`source.py` is the source of gold.
"""
