/** When a reader last looked at a run: what happened since is what they ask for first. */
const AWAY = 600; // seconds; shorter absences are a reload or another tab

interface Visit {
  left: number | null; // when they went away, before this visit
  seen: number; // when they last looked
}

/** Tell when the reader went away last, and remember this visit until the returned function is called. */
export function lastVisit(run: string, now: number, tell: (left: number | null) => void): () => void {
  const key = `tiltmeter.visit.${run}`;
  const behind = now - Date.now() / 1000; // the server's clock dates what happened
  const clock = () => Date.now() / 1000 + behind;
  let left: number | null = null;
  try {
    const kept = JSON.parse(localStorage.getItem(key) ?? "null") as Visit | null;
    if (kept) left = now - kept.seen > AWAY ? kept.seen : kept.left;
  } catch {
    left = null;
  }
  tell(left);
  const remember = () => {
    try {
      localStorage.setItem(key, JSON.stringify({ left, seen: clock() } satisfies Visit));
    } catch {
      // Nothing can be kept here; the page then shows all that happened.
    }
  };
  remember();
  const timer = setInterval(remember, 30_000);
  addEventListener("pagehide", remember);
  return () => {
    clearInterval(timer);
    removeEventListener("pagehide", remember);
    remember();
  };
}
