"""Asks the built site for every word of `docs/concepts.toml`, by the search that readers use, and follows its links.

That search is Material for MkDocs' own worker (lunr 2 with its query rules and ranking), run in Chromium on the built
`search_index.json`. A word is found if the page of the concept is among the first three.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from page_browser import chromium

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))

from search_words import words_by_page

BEST = 3
ADDRESS = re.compile(r"""(?:href|src)=["']([^"'#?]*)(?:\?[^"'#]*)?(?:#([^"']*))?["']""")
NAMED = re.compile(r"""\b(?:id|name)=["']([^"']+)["']""")

#: SETUP is message 0, QUERY is 2, RESULT is 3. Of each result the pages in their order.
ASK = """async ([worker, queries]) => {
  const index = await (await fetch("search/search_index.json")).json();
  const search = new Worker(worker);
  const ask = (message) => new Promise((done) => {
    search.onmessage = (event) => done(event.data);
    search.postMessage(message);
  });
  await ask({ type: 0, data: { ...index, options: { suggest: false } } });
  const found = {};
  for (const query of queries) {
    const answer = await ask({ type: 2, data: query });
    found[query] = answer.data.items.slice(0, 10).map((page) => page[0].location.split("#")[0]);
  }
  search.terminate();
  return found;
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve(site: Path) -> Iterator[str]:
    """The address of the site, on this machine alone: a browser starts no worker from a file."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def find_pages(site: Path, queries: list[str]) -> dict[str, list[str]]:
    """By query: up to ten pages, as the site's search ranks them."""
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    with serve(site) as address, chromium() as browser:
        page = browser.new_page()
        page.goto(f"{address}index.html")
        found: dict[str, list[str]] = page.evaluate(ASK, [worker.relative_to(site).as_posix(), queries])
    return found


def mapped_words() -> dict[str, str]:
    """By word of the concept map: its page."""
    return {word: page.removesuffix(".md") + ".html" for page, words in words_by_page().items() for word in words}


def ranks(found: dict[str, list[str]]) -> dict[str, int]:
    """By word of the concept map: the rank of its page; 0 if it is not among the first ten."""
    wanted = mapped_words()
    return {word: found[word].index(page) + 1 if page in found[word] else 0 for word, page in wanted.items()}


def dead_links(site: Path) -> list[str]:
    """Links of built pages, and of pictures in them, that lead to no file or to no heading of the site."""
    pages = {page: page.read_text() for page in site.rglob("*.html") if page.name != "404.html"}
    named = {page: set(NAMED.findall(text)) for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for path, fragment in set(ADDRESS.findall(text)):
            if re.match(r"[a-z]+:|//", path):
                continue
            target = (page.parent / unquote(path)).resolve() if path else page.resolve()
            target = target / "index.html" if target.is_dir() else target
            missing = (
                fragment and target in named and unquote(fragment) not in named[target] and fragment != "__codelineno"
            )
            if not target.exists() or missing:
                dead.append(f"{page.relative_to(site)}: {path}#{fragment}")
    return sorted(dead)


def main() -> int:
    by_word = ranks(find_pages(Path(sys.argv[1]), list(mapped_words())))
    lost = {word: rank for word, rank in by_word.items() if not 1 <= rank <= BEST}
    print(json.dumps({"terms": len(by_word), "terms_found_top3": len(by_word) - len(lost), "lost": lost}))
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main())
