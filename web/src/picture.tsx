/** The picture of a run, as `tiltmeter.view.screens.picture.layout` drew it; style sheets choose the size that fits. */
import { visible } from "./text";
import type { RunPicture } from "./types";

const SIZES = ["narrow", "middle", "wide"];

export function Picture({ pictures, step, onStep }: { pictures: RunPicture[]; step: number | null; onStep: (step: number) => void }) {
  return <>{pictures.map((picture, k) => <Drawn key={k} picture={picture} size={SIZES[k] ?? ""} step={step} onStep={onStep} />)}</>;
}

/** `step`: where the handle stands; a click moves it. Those who use no mouse have the slider below. */
export function Drawn({ picture, size, step = null, onStep }: { picture: RunPicture; size: string; step?: number | null; onStep?: (step: number) => void }) {
  const { width, height, sentence, paths, words, left, right, first, last } = picture;
  const span = Math.max(last - first, 1);
  const handle = step === null ? null : left + ((right - left) * (step - first)) / span;
  const click = onStep && ((event: MouseEvent) => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * width - left) / (right - left);
    onStep(Math.round(first + span * Math.min(1, Math.max(0, share))));
  });
  return (
    <svg class={`picture ${size}`} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={visible(sentence)} onClick={click}>
      {paths.map((path, k) =>
        path.fill
          ? <path key={k} d={path.d} class={path.colour} fill="currentColor" opacity={path.opacity} />
          : <path key={k} d={path.d} class={path.colour} fill="none" stroke="currentColor" stroke-width={path.width} stroke-dasharray={path.dash} stroke-linejoin="round" opacity={path.opacity} />)}
      {handle !== null && <path class="text" d={`M${handle},8V${height - 20}`} stroke="currentColor" stroke-width="1.5" />}
      {words.map((one, k) => (
        <text key={k} x={one.x} y={one.y} class={one.colour} fill="currentColor" font-size={one.size} font-weight={one.bold ? 600 : undefined} text-anchor={one.anchor}>{visible(one.text)}</text>
      ))}
    </svg>
  );
}
