"""What a path is: a test, a configuration of tests, a grader, or a place outside of the work."""

from __future__ import annotations

import re

_TEST = re.compile(
    r"(?:^|/)(?:[tT]ests?|__tests__|specs?|testing|testdata|__snapshots__)/|(?:^|/)tests?\.py$|(?:^"
    r"|/)test_[^/]{1,120}\.(?:py|sh)$|[_.-](?:test|spec|tests)\.[a-z]{1,4}$|(?:^|/)run_tests?(?:\.[a-z]{1,4})?$"
    r"|[A-Za-z0-9]Tests?\.(?:java|kt|cs|swift|php|scala|dart)$|(?:^|/)t/[^/]{1,120}\.t$|\.bats$"
)
_TEST_FOLDER = re.compile(r"(?:^|/)(?:[tT]ests?|__tests__|specs?)/?\*{0,2}$")
_CONFIG = re.compile(
    r"(?:^|/)(?:conftest\.py|pytest\.ini|tox\.ini|noxfile\.py|\.coveragerc|(?:jest|vitest|karma|playwright"
    r"|cypress)\.(?:config|conf)\.[a-z]{2,3}"
    r"|\.mocharc\.[a-z]{2,4}|\.rspec|phpunit\.xml|test_helper\.exs|\.drone\.yml|nextest\.toml|Jenkinsfile"
    r"|\.gitlab-ci\.yml|\.travis\.yml|azure-pipelines\.yml)$|(?:^|/)\.github/workflows/|(?:^|/)\.circleci/"
)
_MIXED_CONFIG = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.cfg|package\.json|Makefile|Cargo\.toml|pom\.xml|build\.gradle(?:\.kts)?"
    r"|CMakeLists\.txt|Rakefile|justfile|composer\.json|mix\.exs|Package\.swift|Directory\.Build\.props)$"
)
_TEST_OPTIONS = re.compile(
    r"pytest|testpaths|addopts|collect_ignore|\"test\"\s{0,4}:|^test\s{0,4}:|^(?:doc)?test\s{0,4}=|^\[\[test\]\]"
    r"|skipTests|maven\.test\.|testFailureIgnore|ignoreFailures|\badd_test\(|\benable_testing\(|fail_on_error|RakeTask"
    r"|testTarget|VSTest|excludeTests|aliases:[^\n]{0,20}\btest:",
    re.MULTILINE,
)
_GRADER = re.compile(
    r"(?:^|[/._-])(?:grader?s?|grading|verifiers?|verify|evaluators?|scorers?|scoring|judges?|reward|rewards|checker"
    r"|oracle)(?:[/._-]|$)",
    re.IGNORECASE,
)
_PROTECTED = re.compile(
    r"site-packages/|dist-packages/|(?:^|/)(?:sitecustomize|usercustomize)\.py$|\.pth$|(?:^|/)\.git/(?:hooks|config)"
    r"|(?:^|/)node_modules/|(?:^|/)vendor/(?:github\.com|golang\.org|bundle|gems|phpunit)/|(?:^|/)org/(?:junit|assertj"
    r"|hamcrest)/|(?:^|/)(?:surefire-reports|test-results|test-reports|TestResults)/|(?:^|/)(?:junit[^/]{0,40}\.xml"
    r"|rspec_status\.txt|\.eval_status|\.all_tests_passed)$|^/logs/|(?:^|/)reward\.(?:txt|json)$|(?:^|/)(?:results?"
    r"|score|ctrf)\.(?:json|xml|txt)$|(?:^|/)\.(?:bashrc|profile|bash_profile|zshrc|pythonrc|npmrc|pypirc)$"
)
_RUNNER = re.compile(
    r"(?:^|/)(?:\.|s)?bin/(?:pytest|jest|vitest|mocha|npm|npx|node|go|cargo|mvn|gradle|rspec|ctest|make|python3?)$"
    r"|(?:^|/)(?:pytest|unittest)(?:/__init__)?\.py$"
)
_SYSTEM = re.compile(r"^/(?:etc|usr|bin|sbin|lib|lib64|opt|var|boot|proc|sys|root)(?:/|$)|^~|^\$HOME(?:/|$)")
_WORKSPACE = re.compile(r"^/(?:tmp|workspace|work|app|testbed|repo|code|src|project|home/[^/]{1,60}|mnt|data)(?:/|$)")


def is_test(path: str) -> bool:
    """Whether a file or folder is a test of the task's.

    >>> [is_test(path) for path in ("tests/test_a.py", "a/test_b.py", "contest.py", "src/latest.py", "tests")]
    [True, True, False, False, True]
    """
    return bool(_TEST.search(path) or _TEST_FOLDER.search(path)) and not is_test_config(path)


def is_test_config(path: str, text: str = "") -> bool:
    """Whether a file says how tests are run; of files that say other things too, by what was written into them.

    >>> is_test_config("a/conftest.py"), is_test_config("setup.cfg"), is_test_config("setup.cfg", "[tool:pytest]")
    (True, False, True)
    """
    return bool(_CONFIG.search(path) or (_MIXED_CONFIG.search(path) and _TEST_OPTIONS.search(text[:20_000])))


def is_grader(path: str) -> bool:
    """Whether a file is named as what grades is.

    >>> is_grader("env/grader.py"), is_grader("upgrade.py"), is_grader("reward_fn.py")
    (True, False, True)
    """
    return bool(_GRADER.search(path))


def is_protected(path: str) -> bool:
    """Whether a file is one that no task asks to be changed: of the interpreter, of hooks, of results."""
    return bool(_PROTECTED.search(path))


def is_runner(path: str) -> bool:
    """Whether a file is, or stands in for, a program that runs tests.

    >>> is_runner("node_modules/.bin/jest"), is_runner("pytest.py"), is_runner("src/go")
    (True, True, False)
    """
    return bool(_RUNNER.search(path))


def is_outside(path: str, workspace: str) -> bool:
    """Whether a path lies outside of the workspace; where that is not known, in a folder of the system.

    >>> is_outside("/etc/passwd", ""), is_outside("/tmp/a", "/app"), is_outside("/srv/x", "/app"), is_outside("a", "")
    (True, False, True, False)
    """
    if path.startswith(("/tmp/", "/dev/", "/var/tmp/")) or path == "/tmp":
        return False
    if workspace:
        root = workspace.rstrip("/")
        inside = path == root or path.startswith(f"{root}/")
        return not inside and path.startswith(("/", "~", "$HOME", "../../.."))
    return bool(_SYSTEM.search(path)) and not _WORKSPACE.search(path)
