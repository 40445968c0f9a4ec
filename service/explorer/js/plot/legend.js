/** Legend of the colors, and the verdict, for saved pictures. */

import { number } from '../lib/html.js';

const LINE = 19; // pixels a row
const PAD = 10;
const NARROW = 6.7; // pixels a character of 12 pixels, about
const RAMP = 120;

/** Pixels that the legend takes below a picture. */
export const legendHeight = (look) => 8 + 2 * PAD + linesOf(look).length * LINE;

function linesOf({ legend: { kind, title, entries = [], palette, low, high, faint } }) {
  if (kind === 'plain' && !faint) return [];
  return [
    { text: title, isBold: true },
    ...entries.map(({ name, count, color }) => ({ text: `${name} (${number(count)})`, color })),
    ...(kind === 'value' ? [{ ramp: palette }, { text: number(low), end: number(high) }] : []),
    ...(faint?.match(/.{1,22}( |$)/g) ?? []).map((text) => ({ text: text.trim() })),
  ];
}

/** Draw the legend at the lower left of a picture of this height, by a context of a canvas or of SVG. */
export function drawLegend(context, look, height, { ink, surface }) {
  const lines = linesOf(look);
  if (!lines.length) return;
  const width = Math.max(RAMP, ...lines.map(({ text = '', color }) => text.length * NARROW + (color ? 17 : 0))) + 2 * PAD;
  const top = height - 8 - 2 * PAD - lines.length * LINE;
  drawGround(context, top, width, lines.length, surface);
  lines.forEach(({ text, color, ramp = [], end, isBold }, i) => {
    const [x, y] = [8 + PAD, top + PAD + (i + 0.5) * LINE];
    ramp.forEach((step, at) => {
      context.fillStyle = step;
      context.fillRect(x + (at * RAMP) / ramp.length, y - 5, RAMP / ramp.length + 0.5, 9);
    });
    if (color) {
      context.fillStyle = color;
      context.beginPath();
      context.arc(x + 5, y, 5, 0, 2 * Math.PI);
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

const partsOf = (text, width) => text.match(new RegExp(`.{1,${Math.floor((width - 16 - 2 * PAD) / NARROW)}}( |$)`, 'g'));

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
