/** A part that is fetched when it is first needed. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let found: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [Part, setPart] = useState<ComponentType<P> | null>(() => found);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      if (found) return;
      load().then(
        (part) => {
          found = part;
          setPart(() => part);
        },
        () => setFailed(true),
      );
    }, []);
    if (failed) return <p class="trouble" role="alert">A part of the page did not arrive. Reload it.</p>;
    return Part ? <Part {...props} /> : <p class="waiting" aria-busy="true">…</p>;
  };
}
