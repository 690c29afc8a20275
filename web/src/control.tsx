/** Asking for a change of the run: what will happen, a reason where one is needed, and the operator's token, which is
 * typed, kept in memory for a quarter of an hour and never stored. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./screens.css";
import { Refused } from "./source";
import { me, news, useSource } from "./shared";
import { visible } from "./text";
import type { Control, Controlled } from "./types";

const KEPT_MS = 15 * 60 * 1000;
let held = { token: "", until: 0 };
const random = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const token = () => (Date.now() < held.until ? held.token : "");
/** An account says by itself what it may do. */
const byAccount = () => me.value.control === "account";

/** A control request that a person is about to send. */
export interface Wish {
  kind: Control["kind"];
  target: string;
  title: string;
  text: string; // what it does
  reason: "none" | "may" | "must";
  go: string; // the words of the button
  label?: string; // of the field, if it is no reason
  short?: boolean; // one line
  most?: number; // characters
  typed?: "target"; // what is typed is the target, and `fixed` the rest
  fixed?: string;
}

export function ControlDialog({ run, step, wish, done }: { run: string; step: number; wish: Wish; done: (told: Controlled | null) => void }) {
  const source = useSource();
  const dialog = useRef<HTMLDialogElement>(null);
  const typed = useRef<HTMLInputElement>(null);
  const reason = useRef<HTMLTextAreaElement & HTMLInputElement>(null);
  const [asked, setAsked] = useState(!token() && !byAccount());
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => (before as HTMLElement | null)?.focus?.();
  }, []);
  const send = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const control = asked ? (typed.current?.value.trim() ?? "") : token();
    if (!control && !byAccount()) {
      setAsked(true);
      return;
    }
    setBusy(true);
    setTrouble("");
    const words = reason.current?.value.trim() ?? "";
    const [target, said] = wish.typed === "target" ? [words, wish.fixed ?? ""] : [wish.target, wish.fixed ?? words];
    const body: Control = { run, kind: wish.kind, target, step, reason: said, nonce: random() };
    try {
      const told = await source.post<Controlled>("/api/control", body, control);
      held = { token: control, until: Date.now() + KEPT_MS };
      done(told);
      news.set(news.value + 1);
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        held = { token: "", until: 0 };
        setAsked(!byAccount());
      }
      setTrouble(error instanceof Refused ? error.message : "the server does not answer; nothing was requested");
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={() => done(null)}>
      <form onSubmit={send}>
        <h2 id="dialog-title">{wish.title}</h2>
        <p>{visible(wish.text)}</p>
        {wish.reason !== "none" && (
          <label>{wish.label ?? "Reason"}{wish.reason === "must" ? "" : " (may be empty)"}
            {wish.short ? <input ref={reason} type="text" autocomplete="off" spellcheck={false} maxLength={wish.most} required />
              : <textarea ref={reason} rows={wish.most ? 4 : 2} maxLength={wish.most ?? 500} required={wish.reason === "must"} />}
          </label>
        )}
        {asked && (
          <label>Control token
            <input ref={typed} type="password" autocomplete="off" spellcheck={false} required aria-describedby="token-why" />
            <span class="faint small" id="token-why">The terminal that runs <code>tiltmeter view --control</code> says which file holds it. It stays in this page's memory for 15 minutes and is stored nowhere.</span>
          </label>
        )}
        {trouble && <p class="trouble" role="alert">{visible(trouble)}</p>}
        <p class="buttons">
          <button type="submit" class="strong" aria-disabled={busy}>{busy ? "Sending…" : wish.go}</button>
          <button type="button" onClick={() => dialog.current?.close()}>Cancel</button>
        </p>
      </form>
    </dialog>
  );
}

/** A dialog when there is a wish, and afterwards a line with what was answered. */
export function useControl(run: string, step: number, after?: () => void): { ask: (wish: Wish) => void; shown: ComponentChildren } {
  const source = useSource();
  const [wish, setWish] = useState<Wish | null>(null);
  const [told, setTold] = useState("");
  const shown = (
    <>
      <p class="told" role="status">{visible(told)}</p>
      {wish && (
        <ControlDialog key={wish.kind + wish.target} run={run} step={step} wish={wish} done={(answer) => {
          setWish(null);
          if (answer) {
            setTold(answer.text);
            after?.();
          }
        }} />
      )}
    </>
  );
  return { ask: (next) => source.live && (setTold(""), setWish(next)), shown };
}
