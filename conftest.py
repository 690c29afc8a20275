"""Fixtures and budget of all tests: the core's under `tests/`, and those of the packages."""

pytest_plugins = ["tests.shared_fixtures", "tests.budget"]
