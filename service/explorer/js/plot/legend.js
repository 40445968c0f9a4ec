/** Legend of the colors, and the verdict, for saved pictures. */

import { number } from '../lib/html.js';
import { trace } from '../lib/paint.js';

const LINE = 19; // pixels a row
const PAD = 10;
const NARROW = 6.7; // pixels a character of 12 pixels, about
const WIDE = 7.8; // the same of bold ones
const RAMP = 120;

/**
 * The lines of a legend, their width, and how many are below one another: classes flow into columns.
 * @param {import('../store.js').Look} look
 * @param {number} width
 */
function layOut({ legend: { kind, title, entries = [], palette, ends }, shapes }, width) {
  /** @type {{text?: string, color?: string, shape?: number, isBold?: boolean, ramp?: string[], end?: string}[]} */
  const lines =
    kind === 'plain'
      ? []
      : [
          { text: title, isBold: true },
          ...entries.map(({ name, count, color, index }) => ({
            text: `${name} (${number(count)})`,
            color,
            shape: shapes[index],
          })),
          ...(kind === 'value' ? [{ ramp: palette }, { text: ends[0], end: ends[1] }] : []),
        ];
  const across =
    Math.max(RAMP, ...lines.map(({ text = '', color }) => text.length * NARROW + (color ? 17 : 0))) + 2 * PAD;
  const columns = kind === 'classes' ? Math.max(1, Math.floor((width - 16) / across)) : 1;
  return { lines, across, down: Math.ceil(lines.length / columns) };
}

/** Pixels that the legend takes below a picture of this width. */
export const legendHeight = (look, width) => 8 + 2 * PAD + layOut(look, width).down * LINE;

/** Draw the legend below a picture of this width and height. */
export function drawLegend(context, look, width, height, { ink, surface }) {
  const { lines, across, down } = layOut(look, width);
  if (!lines.length) return;
  drawGround(context, height, width - 16, down, surface);
  lines.forEach(({ text, color, shape, ramp = [], end, isBold }, i) => {
    const [x, y] = [8 + PAD + Math.floor(i / down) * across, height + PAD + ((i % down) + 0.5) * LINE];
    ramp.forEach((step, at) => {
      context.fillStyle = step;
      context.fillRect(x + (at * RAMP) / ramp.length, y - 5, RAMP / ramp.length + 0.5, 9);
    });
    if (color) {
      context.fillStyle = color;
      context.beginPath();
      trace(context, shape, x + 5, y, 5);
      context.fill();
    }
    context.fillStyle = ink;
    context.font = `${isBold ? '600 ' : ''}12px system-ui, sans-serif`;
    context.textAlign = 'left';
    if (text) context.fillText(text, x + (color ? 17 : 0), y);
    context.textAlign = 'right';
    if (end) context.fillText(end, x + RAMP, y);
  });
}

const partsOf = (text, width) =>
  text
    .split('\n')
    .flatMap((line) => line.match(new RegExp(`.{1,${Math.floor((width - 16 - 2 * PAD) / WIDE)}}( |$)`, 'g')) ?? []);

/** Pixels that a sentence takes below a picture of this width. */
export const sentenceHeight = (text, width) => 8 + 2 * PAD + partsOf(text, width).length * LINE;

/** Draw a sentence below a picture of this width and height. */
export function drawSentence(context, text, width, height, { ink, surface }) {
  const lines = partsOf(text, width);
  drawGround(context, height, width - 16, lines.length, surface);
  Object.assign(context, { fillStyle: ink, font: '600 12px system-ui, sans-serif', textAlign: 'left' });
  lines.forEach((line, i) => context.fillText(line.trim(), 8 + PAD, height + PAD + (i + 0.5) * LINE));
}

/** Draw the pale ground of some lines of text. */
function drawGround(context, top, width, count, surface) {
  context.globalAlpha = 0.88;
  context.fillStyle = surface;
  context.fillRect(8, top, width, 2 * PAD + count * LINE);
  context.globalAlpha = 1;
  context.textBaseline = 'middle';
}
