/** Rendered text, whose parser comes when it is first asked for. */
import { lazy } from "../lazy";

export const Rendered = lazy<{ text: string }>(() => import("./rendered").then((m) => m.Rendered));
