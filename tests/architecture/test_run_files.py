"""Files of a run directory are opened, listed, made and removed in `rundir/run_path.py` and nowhere else."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "tiltmeter"

#: Rooms that meet run directories. The command line and the readers of other tools open what a person names.
ROOMS = ("rundir", "gold", "interventions", "verdict", "monitor", "witness", "view")

#: Calls that take a path and follow links in it, by the name behind the last dot.
METHODS = frozenset({
    "read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "glob", "rglob", "walk", "scandir", "listdir",
    "unlink", "mkdir", "makedirs", "touch", "symlink_to", "hardlink_to", "rename", "rmdir", "rmtree", "copyfile",
    "copytree", "chmod", "memory_map", "OSFile", "read_table", "fromfile", "fdopen",
})  # fmt: skip
FUNCTIONS = frozenset({"os.open", "io.open", "gzip.open", "np.load", "os.remove", "os.replace", "os.link"})
NAMES = frozenset({"open"})
#: With a descriptor of its folder, or of itself, a call cannot be led elsewhere.
BY_DESCRIPTOR = frozenset({"dir_fd", "src_dir_fd"})

#: What is left, and why it may.
ALLOWED = {
    ("rundir/store.py", "mkdir"): 1,  # the run directory itself, where the user wants it
    ("rundir/store.py", "chmod"): 1,
    ("rundir/checkpoints/hashes.py", "os.open"): 1,  # the trainer's own checkpoint, which is not of the run directory
    ("rundir/checkpoints/hashes.py", "rglob"): 1,
    ("rundir/sidecar.py", "listdir"): 1,  # of a descriptor
    ("rundir/atomic_write.py", "listdir"): 1,  # of a descriptor
    ("rundir/atomic_write.py", "read_text"): 1,  # of /proc
    ("rundir/gate/untrusted.py", "scandir"): 1,  # of a descriptor
    ("rundir/journal.py", "fdopen"): 2,  # of a descriptor
    ("rundir/journal_links.py", "fdopen"): 2,  # likewise
    ("rundir/journal_chain/check.py", "fdopen"): 1,  # likewise
    ("rundir/maintenance.py", "fdopen"): 1,  # of a descriptor
    ("rundir/decoded_size.py", "memory_map"): 2,  # files of other tools, which a person names
    ("rundir/owner_state.py", "os.open"): 1,  # tokens, keys and records, outside of every run directory
    ("rundir/owner_state.py", "mkdir"): 1,
    ("rundir/remote/copy.py", "mkdir"): 2,  # the copy itself, in a private folder of the user's cache
    ("rundir/remote/copy.py", "chmod"): 1,
    ("rundir/remote/objects.py", "mkdir"): 1,  # a store in a folder that a person names
    ("rundir/remote/objects.py", "fdopen"): 1,  # of a descriptor
    ("rundir/remote/spool.py", "mkdir"): 1,  # the run directory itself, in a private folder
    ("rundir/remote/spool.py", "rename"): 1,
    ("gold/function_process.py", "read_bytes"): 2,  # the gold function's file, which a person names
    ("gold/function_process.py", "fdopen"): 1,  # of a pipe
    ("gold/guards/composed_reward.py", "read_text"): 1,  # a reward's state, where the user wants it
    ("gold/guards/composed_reward.py", "write_text"): 1,
    ("gold/traps/trap_file.py", "read_bytes"): 1,  # a file of traps, which a person names
    ("gold/traps/trap_file.py", "write_text"): 1,
    ("gold/regrade/assertions.py", "walk"): 2,  # of a syntax tree
    ("gold/regrade/blind_tests.py", "walk"): 2,  # likewise
    ("gold/regrade/grading.py", "glob"): 1,  # of a private folder
    ("gold/regrade/hostile_folder.py", "os.open"): 1,  # an agent's folder, which a person names; all else by descriptor
    ("gold/regrade/hostile_folder.py", "scandir"): 1,  # of a descriptor
    ("gold/regrade/inside.py", "makedirs"): 4,  # in a sandbox
    ("gold/regrade/inside.py", "os.open"): 1,
    ("gold/regrade/inside.py", "open"): 1,
    ("gold/regrade/packages.py", "chmod"): 1,  # a private folder with packages that are installed here
    ("gold/regrade/packages.py", "mkdir"): 1,
    ("gold/regrade/packages.py", "copyfile"): 1,
    ("gold/regrade/packages.py", "rglob"): 1,
    ("gold/regrade/settings.py", "read_text"): 1,  # a file of cases, which a person names
    ("monitor/lease.py", "open"): 1,  # of /proc
    ("verdict/page_snapshot.py", "rglob"): 1,  # the package's own code
    ("verdict/page_snapshot.py", "read_bytes"): 1,
    ("view/run_views.py", "write_text"): 1,  # the report, where the user wants it
    ("view/report/bundle.py", "mkdir"): 1,  # the bundle, where the user wants it
    ("view/report/bundle.py", "write_text"): 2,
    ("view/report/bundle.py", "iterdir"): 3,
    ("view/report/bundle.py", "rename"): 3,
    ("view/report/bundle.py", "rmtree"): 2,
    ("view/report/bundle.py", "read_bytes"): 1,
    ("view/trackers/position.py", "mkdir"): 1,  # --state
    ("view/server/access.py", "mkdir"): 1,  # the server's secrets, outside of every run directory
    ("view/server/access.py", "os.open"): 1,
    ("view/server/app.py", "rglob"): 1,  # the page's own files
    ("view/server/app.py", "read_bytes"): 1,
    ("view/server/serve.py", "unlink"): 1,  # a socket that the user names
}


def path_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or BY_DESCRIPTOR & {word.arg for word in node.keywords}:
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in NAMES:
            yield called.id
        elif isinstance(called, ast.Attribute):
            whole = ast.unparse(called)
            if "files(" in whole:
                continue  # of the package itself
            if whole in FUNCTIONS:
                yield whole
            elif called.attr in METHODS:
                yield called.attr


def calls_in(source: Path) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for room in ROOMS:
        for file in sorted((source / room).rglob("*.py")):
            name = str(file.relative_to(source))
            if name != "rundir/run_path.py":
                found.update((name, call) for call in path_calls(ast.parse(file.read_text("utf-8"))))
    return found


def test_run_files_are_opened_in_one_place() -> None:
    found = calls_in(SOURCE)
    more = {key: count for key, count in found.items() if count > ALLOWED.get(key, 0)}
    assert not more, f"use rundir/run_path.py: {more}"
    assert all(found[key] == count for key, count in ALLOWED.items()), "the list has more than there is: shorten it"


def test_the_check_sees_every_way_to_open_a_file() -> None:
    lines = (
        "(run.path / 'x').read_bytes()", "open(path)", "os.open(path, 0)", "os.listdir(path)", "path.unlink()",
        "pa.memory_map(str(path))", "shutil.rmtree(path)", "sorted(path.glob('*'))",
    )  # fmt: skip
    for line in lines:
        assert list(path_calls(ast.parse(line))), line
    assert not list(path_calls(ast.parse("os.open(name, flags, dir_fd=folder)")))
    assert not list(path_calls(ast.parse("read_file(path, 10)")))
