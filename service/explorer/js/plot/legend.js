/** Legend of the colors for saved pictures: the same rows on a canvas and in SVG. */

import { number } from '../lib/html.js';

const LINE = 19; // pixels a row
const PAD = 10;
const NARROW = 6.7; // pixels a character of 12 pixels, about
const RAMP = 120;

/** The legend as marks in pixels from its corner, and its size; null if there is nothing to explain. */
export function legendMarks({ legend }) {
  if (legend.kind === 'plain') return null;
  const marks = [{ text: legend.title, x: PAD, y: PAD + 11, bold: true }];
  if (legend.kind === 'classes') {
    legend.entries.forEach(({ name, color, count }, i) => {
      const y = PAD + (i + 1) * LINE + 11;
      marks.push({ circle: color, x: PAD + 5, y: y - 4 }, { text: `${name} (${number(count)})`, x: PAD + 17, y });
    });
  } else {
    const y = PAD + LINE;
    marks.push({ ramp: legend.palette, x: PAD, y, width: RAMP, height: 9 });
    marks.push({ text: number(legend.low), x: PAD, y: y + 23 }, { text: number(legend.high), x: PAD + RAMP, y: y + 23, end: true });
  }
  const width = Math.max(RAMP, ...marks.map(({ text, x }) => (text ? x + text.length * NARROW : 0))) + PAD;
  const height = legend.kind === 'classes' ? PAD * 2 + (legend.entries.length + 1) * LINE - 4 : PAD * 2 + LINE + 26;
  return { marks, width, height };
}

/** Paint the legend at the lower left of a canvas; `factor` is pixels a unit. */
export function paintLegend(context, look, height, factor, { ink, surface, line }) {
  const found = legendMarks(look);
  if (!found) return;
  context.save();
  context.scale(factor, factor);
  context.translate(8, height - found.height - 8);
  context.fillStyle = surface;
  context.strokeStyle = line;
  context.globalAlpha = 0.88;
  context.fillRect(0, 0, found.width, found.height);
  context.globalAlpha = 1;
  context.strokeRect(0, 0, found.width, found.height);
  for (const { text, circle, ramp, x, y, width, height: high, bold, end } of found.marks) {
    if (ramp) {
      ramp.forEach((color, i) => {
        context.fillStyle = color;
        context.fillRect(x + (i * width) / ramp.length, y, width / ramp.length + 0.5, high);
      });
    } else if (circle) {
      context.fillStyle = circle;
      context.beginPath();
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.fill();
    } else {
      context.fillStyle = ink;
      context.font = `${bold ? '600 ' : ''}12px system-ui, sans-serif`;
      context.textAlign = end ? 'right' : 'left';
      context.fillText(text, x, y);
    }
  }
  context.restore();
}

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Text for XML. */
export const escapeXml = (text) => String(text).replaceAll(/[&<>"]/g, (sign) => ESCAPES[sign]);

/** The legend as an SVG group at the lower left of a picture. */
export function svgLegend(look, height, { ink, surface, line }) {
  const found = legendMarks(look);
  if (!found) return '';
  const drawn = found.marks.map(({ text, circle, ramp, x, y, width, height: high, bold, end }) => {
    if (ramp) {
      const step = width / ramp.length;
      return ramp.map((color, i) => `<rect x="${(x + i * step).toFixed(2)}" y="${y}" width="${(step + 0.5).toFixed(2)}" height="${high}" fill="${color}"/>`).join('');
    }
    if (circle) return `<path d="M${x - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0" fill="${circle}"/>`;
    return `<text x="${x}" y="${y}"${bold ? ' font-weight="600"' : ''}${end ? ' text-anchor="end"' : ''}>${escapeXml(text)}</text>`;
  });
  return `<g id="legend" transform="translate(8 ${height - found.height - 8})" font-family="system-ui, sans-serif" font-size="12" fill="${ink}">` +
    `<rect width="${found.width}" height="${found.height}" fill="${surface}" fill-opacity=".88" stroke="${line}"/>${drawn.join('')}</g>`;
}
