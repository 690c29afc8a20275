/** The picture of a run, as `tiltmeter.view.screens.picture.layout` drew it; style sheets choose the size that fits. */
import { visible } from "./text";
import type { RunPicture } from "./types";

const SIZES = ["narrow", "middle", "wide"];

export function Picture({ pictures }: { pictures: RunPicture[] }) {
  return <>{pictures.map((picture, k) => <Drawn key={k} picture={picture} size={SIZES[k] ?? ""} />)}</>;
}

export function Drawn({ picture: { width, height, sentence, paths, words }, size }: { picture: RunPicture; size: string }) {
  return (
    <svg class={`picture ${size}`} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={visible(sentence)}>
      {paths.map((path, k) =>
        path.fill
          ? <path key={k} d={path.d} class={path.colour} fill="currentColor" opacity={path.opacity} />
          : <path key={k} d={path.d} class={path.colour} fill="none" stroke="currentColor" stroke-width={path.width} stroke-dasharray={path.dash} stroke-linejoin="round" opacity={path.opacity} />)}
      {words.map((one, k) => (
        <text key={k} x={one.x} y={one.y} class={one.colour} fill="currentColor" font-size={one.size} font-weight={one.bold ? 600 : undefined} text-anchor={one.anchor}>{visible(one.text)}</text>
      ))}
    </svg>
  );
}
