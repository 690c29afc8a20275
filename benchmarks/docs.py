"""The documentation in figures: what its search finds, what of its code is run, whether a release can be repeated.

    python benchmarks/docs.py [--site FOLDER] [--json] [--write]

`terms` are the words of `docs/concepts.toml`; one is found if its page is among the first three that the built site's
own search gives (Material for MkDocs' worker, lunr, in Chromium). `code_blocks` are fenced blocks of code (Python,
prompts, consoles, shells); data and output (JSON, YAML, TOML, text) are counted apart. `--site` takes a site that is
built already.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from record import record, show

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from tests.pages import DOCS, block_states  # noqa: E402

from macros.api import MODULES, has_example, public_names  # noqa: E402
from site_search import BEST, dead_links, find_pages, mapped_words, ranks  # noqa: E402
from wheel import build  # noqa: E402


def build_site(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(folder)],
        cwd=ROOT, check=True, timeout=900, capture_output=True,
    )  # fmt: skip
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, help="a site that is built already")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/docs.json")
    options = parser.parse_args()
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    states = Counter(state for page in pages for state in block_states(page))
    names = [value for module in MODULES for _, value in public_names(module)]
    with tempfile.TemporaryDirectory() as folder:
        site = (options.site or build_site(Path(folder) / "site")).resolve()
        by_term = ranks(find_pages(site, list(mapped_words())))
        dead = dead_links(site)
        first, second = build(Path(folder) / "one"), build(Path(folder) / "two")
    figures = {
        "pages": len(pages),
        "terms": len(by_term),
        "terms_found_top3": sum(1 <= rank <= BEST for rank in by_term.values()),
        "terms_found_first": sum(rank == 1 for rank in by_term.values()),
        "code_blocks": states["run"] + states["not run"] + states["unmarked"],
        "code_blocks_executed": states["run"],
        "code_blocks_marked_not_run": states["not run"],
        "code_blocks_unmarked": states["unmarked"],
        "data_blocks": states["data"],
        "public_names": len(names),
        "public_names_documented": sum(map(has_example, names)),
        "dead_links": len(dead),
        "readme_lines": len((ROOT / "README.md").read_text().splitlines()),
        "wheel_reproducible": first == second,
    }
    for link in dead:
        print(link, file=sys.stderr)
    show(record("docs", figures, seed=0, keep=options.write), as_json=options.json)
    wrong = dead or states["unmarked"] or figures["terms"] != figures["terms_found_top3"] or first != second
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
