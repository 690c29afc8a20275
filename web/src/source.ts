/** Where data comes from: the server, or, in a report, the file itself. Screens cannot tell which. */
import type { Pushed } from "./types";

export type Params = Record<string, string | number | undefined | (string | number)[]>;
export type Link = "connected" | "lost";

export interface Source {
  readonly live: boolean; // a report is not
  get<T>(path: string, params?: Params, signal?: AbortSignal): Promise<T>;
  post<T>(path: string, body: object, control?: string): Promise<T>;
  /** A file. A link could not carry the token, so it is fetched and then handed over. */
  file(path: string, params: Params): Promise<Blob>;
  /** Follow a run (or, with "", the fleet) until the returned function is called. */
  follow(run: string, heard: (pushed: Pushed) => void, link: (state: Link) => void): () => void;
}

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** A path with its parameters in a fixed order: the key under which a report keeps the answer. */
export function address(path: string, params: Params = {}): string {
  const told: [string, string][] = [];
  for (const [name, value] of Object.entries(params).sort(([a], [b]) => (a < b ? -1 : 1))) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== "") told.push([name, String(one)]);
    }
  }
  return told.length ? `${path}?${new URLSearchParams(told)}` : path;
}

/** Below the page's own address, which a proxy may have put under another path. */
const here = (where: string) => `.${where}`;

type Early = { path: string; reply: Promise<Response> };

const SILENCE = 9_000; // milliseconds without a word of the stream, which has a beat every 5 s: then nobody is there
const PEEK = 15_000; // between two looks of a hidden page

export class HttpSource implements Source {
  readonly live = true;
  constructor(readonly role: "view" | "label" = "view") {}

  /** Nothing where a proxy has signed this person in. */
  private get authorization(): Record<string, string> {
    const token = localStorage.getItem(`tiltmeter.${this.role}`);
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  async get<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
    const where = address(path, params);
    const page = window as { early?: Early };
    if (page.early?.path === where) {
      const { reply } = page.early;
      page.early = undefined;
      return unpack<T>(await reply);
    }
    return unpack<T>(await fetch(here(where), { headers: this.authorization, signal }));
  }

  async file(path: string, params: Params): Promise<Blob> {
    const reply = await fetch(here(address(path, params)), { headers: this.authorization });
    return reply.ok ? reply.blob() : unpack<Blob>(reply);
  }

  async post<T>(path: string, body: object, control = ""): Promise<T> {
    const headers: Record<string, string> = { "Content-Type": "application/json", ...this.authorization };
    if (control) headers["Tiltmeter-Control"] = control;
    return unpack<T>(await fetch(here(path), { method: "POST", headers, body: JSON.stringify(body) }));
  }

  /** `EventSource` cannot carry a token, so the stream is read by hand. A server that hangs keeps its connections open, so
   * silence counts as lost. A hidden tab lets go of its connection and looks now and then, for its title. */
  follow(run: string, heard: (pushed: Pushed) => void, link: (state: Link) => void): () => void {
    let stopped = false;
    let last = "";
    let waiting = 500;
    let abort = new AbortController();
    const listen = async () => {
      while (!stopped) {
        const peek = document.hidden;
        abort = new AbortController();
        let watchdog = 0;
        const alive = () => {
          clearTimeout(watchdog);
          watchdog = window.setTimeout(() => abort.abort(), SILENCE);
        };
        alive();
        let answered = false;
        try {
          const headers: Record<string, string> = { ...this.authorization };
          if (last) headers["Last-Event-ID"] = last;
          const reply = await fetch(here(address("/api/stream", { run })), { headers, signal: abort.signal });
          if (!reply.ok || !reply.body) throw new Refused(reply.status, "no stream");
          link("connected");
          waiting = 500;
          for await (const [id, data] of parts(reply.body, alive)) {
            if (id) last = id;
            const pushed = JSON.parse(data) as Pushed;
            heard(pushed);
            answered = true;
            if (peek && pushed.kind === "state") break;
          }
        } catch {
          // The reason does not matter: the bar says that what is shown is old, and we try again.
        }
        clearTimeout(watchdog);
        abort.abort();
        if (stopped) return;
        if (!(peek || document.hidden) || (peek && !answered)) link("lost");
        if (document.hidden) {
          await new Promise<void>((resolve) => {
            const done = () => {
              clearTimeout(timer);
              document.removeEventListener("visibilitychange", done);
              resolve();
            };
            const timer = window.setTimeout(done, PEEK);
            document.addEventListener("visibilitychange", done);
          });
          continue;
        }
        if (peek) continue; // it is looked at again
        await new Promise((resolve) => setTimeout(resolve, waiting));
        waiting = Math.min(5000, waiting * 2);
      }
    };
    const hide = () => document.hidden && abort.abort();
    document.addEventListener("visibilitychange", hide);
    void listen();
    return () => {
      stopped = true;
      document.removeEventListener("visibilitychange", hide);
      abort.abort();
    };
  }
}

/** The events of a stream as (id, data). */
async function* parts(body: ReadableStream<Uint8Array>, alive: () => void): AsyncGenerator<[string, string]> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest += decoder.decode(value, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const lines = event.split("\n");
      const field = (name: string) => lines.filter((l) => l.startsWith(`${name}: `)).map((l) => l.slice(name.length + 2)).join("\n");
      const data = field("data");
      if (data) yield [field("id"), data];
    }
  }
}

async function unpack<T>(reply: Response): Promise<T> {
  if (reply.ok) return (await reply.json()) as T;
  const told = (await reply.json().catch(() => ({}))) as { error?: string };
  throw new Refused(reply.status, told.error ?? `the server answered ${reply.status}`);
}

/** The answers that a report carries, by address. */
export class InlineSource implements Source {
  readonly live = false;
  constructor(private readonly kept: Record<string, unknown>) {}

  get<T>(path: string, params: Params = {}): Promise<T> {
    const { run: _, since: __, ...asked } = params;
    const found = this.kept[address(path, asked)] ?? this.kept[path];
    return found === undefined
      ? Promise.reject(new Refused(404, "not part of this report; open the run: tiltmeter view RUN"))
      : Promise.resolve(found as T);
  }

  post<T>(): Promise<T> {
    return Promise.reject(new Refused(405, "a report cannot change a run"));
  }

  file(): Promise<Blob> {
    return Promise.reject(new Refused(405, "this is the file"));
  }

  follow(): () => void {
    return () => undefined;
  }
}
