/** The report: the same screens one below the other, from data inside the file. */
import { render } from "preact";
import "./style.css";
import { SourceContext } from "./shared";
import { InlineSource } from "./source";
import { RunHead } from "./head";
import type { Summary } from "./types";

interface Kept {
  made: string; // by which version, when, up to which step
  answers: Record<string, unknown>;
}

const kept = JSON.parse(document.getElementById("data")?.textContent ?? "{}") as Kept;
const source = new InlineSource(kept.answers);
const root = document.getElementById("page");
void source.get<Summary>("/api/summary").then((summary) => {
  if (root) {
    render(
      <SourceContext.Provider value={source}>
        <main class="report">
          <p class="faint">{kept.made}</p>
          <RunHead summary={summary} />
        </main>
      </SourceContext.Provider>,
      root,
    );
  }
});
