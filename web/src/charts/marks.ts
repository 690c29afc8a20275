/** Alarms, warnings and actions on every plot over steps: alarms solid and filled, warnings dotted and hollow. */
import type { Lane, Mark } from "../types";
import { colour, FONT, shape } from "./palette";

const LOOK: Record<Mark["kind"], { token: string; dash: number[]; rank: number; line: boolean }> = {
  alarm: { token: "act", dash: [], rank: 4, line: true },
  stop: { token: "text", dash: [], rank: 3, line: true },
  did: { token: "link", dash: [6, 2, 1, 2], rank: 2, line: true },
  warning: { token: "watch", dash: [1, 3], rank: 1, line: true },
  segment: { token: "grey", dash: [3, 4], rank: 0, line: false },
  checkpoint: { token: "faint", dash: [], rank: 0, line: false },
};

/** Whether a later attempt went back past this step. */
export function abandoned(mark: { attempt: number; step: number }, lanes: Lane[]): boolean {
  const left = lanes.find((lane) => lane.attempt === mark.attempt)?.left;
  return left !== null && left !== undefined && mark.step >= left;
}

export function look(mark: Mark, lanes: Lane[]): { token: string; dash: number[] } {
  const { token, dash } = LOOK[mark.kind];
  return { token: abandoned(mark, lanes) ? "grey" : token, dash };
}

/** Marks worth a line, the gravest last so that it lies on top. */
export function lined(marks: Mark[]): Mark[] {
  return marks.filter((mark) => LOOK[mark.kind].line).sort((a, b) => LOOK[a.kind].rank - LOOK[b.kind].rank);
}

/** Of marks that would lie on each other, the gravest. */
export function apart(marks: Mark[], place: (step: number) => number, gap: number): Mark[] {
  const kept: Mark[] = [];
  for (const mark of [...marks].sort((a, b) => LOOK[b.kind].rank - LOOK[a.kind].rank || a.step - b.step)) {
    if (kept.every((other) => Math.abs(place(other.step) - place(mark.step)) >= gap)) kept.push(mark);
  }
  return kept;
}

/** The sign of a mark around (x, y): o warning, ! alarm, A action, X stop. `unit`: pixels of the canvas per pixel. */
export function sign(ctx: CanvasRenderingContext2D, mark: Mark, token: string, x: number, y: number, unit = 1): void {
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = colour(token);
  ctx.lineWidth = 1.5 * unit;
  ctx.setLineDash([]);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.font = `bold ${FONT.replace("11px", `${9 * unit}px`)}`;
  if (mark.kind === "warning") {
    shape(ctx, "ring", x, y, 3.6 * unit);
    ctx.fillStyle = colour("ground");
    ctx.fill();
    ctx.stroke();
  } else if (mark.kind === "alarm") {
    shape(ctx, "triangle", x, y, 5.2 * unit);
    ctx.fill();
    ctx.fillStyle = colour("ground");
    ctx.fillText("!", x, y + 0.8 * unit);
  } else if (mark.kind === "did") {
    shape(ctx, "square", x, y, 6 * unit);
    ctx.fill();
    ctx.fillStyle = colour("ground");
    ctx.fillText("A", x, y + 0.5 * unit);
  } else if (mark.kind === "stop") {
    ctx.lineWidth = 2.4 * unit;
    shape(ctx, "cross", x, y, 4 * unit);
    ctx.stroke();
  } else if (mark.kind === "checkpoint") {
    shape(ctx, "ring", x, y, 2.4 * unit);
    ctx.stroke();
  }
  ctx.restore();
}
