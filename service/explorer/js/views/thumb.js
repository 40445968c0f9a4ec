/** Small picture of an embedding, with a lasso. */

import { choosePoints } from '../actions/selection.js';
import { pointsInside, followLasso } from '../lib/lasso.js';
import { html, useEffect, useRef } from '../lib/html.js';
import { centeredScreen, resizeCanvas, paint } from '../lib/paint.js';
import { colors } from '../lib/theme.js';
import { linesOf, textOf } from '../lib/verdict.js';
import { nameOutlines, strokeOutlines } from '../plot/islands.js';

const CLICK = 5;

/**
 * The picture.
 * @param {{xy: Float32Array, look: import('../store.js').Look, mask: Uint8Array | null,
 *   title: string, note?: string, current?: boolean, answers?: string[],
 *   said?: import('../store.js').Schemas['ComparedOut'],
 *   outlines?: object[], onOpen?: () => void}} props
 */
export function Thumb({ xy, look, mask, title, note, current, said, answers = [], outlines, onOpen }) {
  const canvas = useRef(null);
  const now = useRef({});
  now.current = { xy, look, mask, outlines, onOpen };
  useEffect(() => {
    const draw = (line = []) => drawThumb(canvas.current, now.current, line);
    now.current.draw = draw;
    const watcher = new ResizeObserver(() => draw());
    watcher.observe(canvas.current);
    followLasso(canvas.current, {
      draw,
      end: (line) => {
        draw();
        const [first, last] = [line[0], line[line.length - 1]];
        if (line.length < 8 && Math.hypot(first[0] - last[0], first[1] - last[1]) < CLICK) now.current.onOpen?.();
        else choosePoints(pointsInside(line, now.current.xy, screenOf(canvas.current)));
      },
    });
    return () => watcher.disconnect();
  }, []);
  useEffect(() => drawThumb(canvas.current, now.current, []), [xy, look, mask, outlines]);
  const open = (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    onOpen?.();
  };
  return html`
    <figure class=${`thumb${current ? ' current' : ''}`} data-testid="thumb">
      <canvas ref=${canvas} tabindex=${onOpen ? 0 : -1} role=${onOpen ? 'button' : 'img'} aria-label=${title}
        onKeyDown=${open}></canvas>
      <figcaption title=${title}><span>${title}</span>${note && html`<span class="quiet">${note}</span>`}</figcaption>
      ${answers.length > 0 && html`<p class="answers" data-testid="best">Show it for ${answers.join(' and ')}.</p>`}
      ${said?.lines &&
        html`<div class=${`level ${said.level}`} data-testid="thumb-verdict" title=${textOf(said)}>
          ${linesOf(said.lines).filter(({ mark }) => mark).map(({ mark, text }) => html`<p>${mark} ${text}</p>`)}
      </div>`}
    </figure>
  `;
}

const screenOf = (canvas) => centeredScreen(canvas.clientWidth, canvas.clientHeight);

function drawThumb(canvas, { xy, look, mask, outlines = [] }, line) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  const context = resizeCanvas(canvas, width, height);
  const ratio = canvas.width / width;
  const n = xy.length / 2;
  const radius = (n <= 300 ? 2.2 : n <= 3000 ? 1.4 : 0.7) * ratio;
  paint(context, xy, centeredScreen(canvas.width, canvas.height), look, {
    radius,
    mask,
    opacity: 0.8,
  });
  const screen = centeredScreen(canvas.width, canvas.height);
  const place = ([x, y]) => [screen.x + screen.sx * x, screen.y + screen.sy * y];
  strokeOutlines(context, outlines, place, colors().ink, 0.8 * ratio);
  nameOutlines(context, outlines, place, colors(), { unit: 0.8 * ratio });
  if (line.length < 2) return;
  context.strokeStyle = colors().ink;
  context.lineWidth = ratio;
  context.beginPath();
  for (const [x, y] of line) context.lineTo(x * ratio, y * ratio);
  context.stroke();
}
