/** Files of the shown picture and of its arrays. */

import { askMade } from '../jobs.js';
import { dimension, embeddingOf, titleOf } from '../lib/frames.js';
import { npyOf } from '../lib/npy.js';
import { escapeHtml, percent } from '../lib/html.js';
import { paint, paintShapes } from '../lib/paint.js';
import { tableHere } from '../lib/rows.js';
import { titleOfMethod } from '../lib/titles.js';
import { textOf } from '../lib/verdict.js';
import { nameOf } from '../panels/data_panel.js';
import { colors } from '../lib/theme.js';
import { brightRows } from './selection.js';
import { runWork } from './state.js';
import { drawLegend, drawSentence, legendHeight, sentenceHeight } from '../plot/legend.js';
import { contoursTraced, drawMarks, marksHere } from '../plot/overlay.js';
import { SvgContext, SvgPath } from '../lib/svg.js';
import { sizeOf } from '../plot/size.js';
import { median } from '../views/headline.js';
import { onStage } from '../views/stage.js';
import { state } from '../store.js';

const SIDE = 2400; // pixels of the longer side of a saved picture, which are 8 inches
const DPI_300 = [0, 0, 0, 9, 112, 72, 89, 115, 0, 0, 46, 35, 0, 0, 46, 35, 1, 120, 165, 63, 118]; // a chunk pHYs of PNG
const HEAD = 33; // bytes of a PNG before its second chunk
const MAX_SVG_POINTS = 20000;
const MAX_ROWS = 5000; // of a table in a saved page

/** Save the picture as PNG, as it is on the screen. */
export async function savePng() {
  if (!onStage.xy) return 'Show a draw first';
  return save(await pngOf(), `${fileName()}.png`);
}

/** The picture with title, verdict and legend as PNG at 300 dots per inch. */
async function pngOf() {
  await contoursTraced();
  const { plot, xy, look } = onStage;
  const { width, height, top } = placesOfPicture();
  const factor = Math.max(1, SIDE / Math.max(width, height));
  const [picture, dots] = [1, 2].map(() =>
    Object.assign(document.createElement('canvas'), { width: width * factor, height: height * factor }),
  );
  const { x, y, sx, sy } = plot.screen();
  const screen = { x: x * factor, y: y * factor, sx: sx * factor, sy: sy * factor };
  const { size, opacity } = sizeOf(xy.length / 2);
  paint(dots.getContext('2d'), xy, screen, look, { radius: (size / 2) * factor, mask: brightRows(), opacity });
  const context = picture.getContext('2d');
  context.fillStyle = colors().surface;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(dots, 0, top * factor);
  context.scale(factor, factor);
  context.translate(0, top);
  drawAbove(context);
  const made = await new Promise((resolve) => picture.toBlob(resolve, 'image/png'));
  return new Blob([made.slice(0, HEAD), new Uint8Array(DPI_300), made.slice(HEAD)], { type: 'image/png' });
}

/** Save the picture as SVG, with its text as text. */
export async function saveSvg() {
  if (!onStage.xy) return 'Show a draw first';
  await contoursTraced();
  const { plot, xy, look } = onStage;
  if (xy.length / 2 > MAX_SVG_POINTS) return 'Save a PNG: an SVG has at most 20,000 points';
  const { width, height, top } = placesOfPicture();
  const context = new SvgContext(width, height, colors().surface);
  context.translate(0, top);
  const { size, opacity } = sizeOf(xy.length / 2);
  paintShapes(context, xy, plot.screen(), look, {
    radius: size / 2,
    mask: brightRows(),
    opacity,
    Path: SvgPath,
  });
  drawAbove(context);
  return save(new Blob([context.text()], { type: 'image/svg+xml' }), `${fileName()}.svg`);
}

/** Data, method and frame of the picture. */
function titleHere() {
  const { dataset, single, posterior, frame } = state;
  return `${nameOf(dataset)}: ${single ? single.title
    : `${titleOfMethod(posterior.spec.method)}, ${posterior.spec.n_neighbors} neighbors. ${titleOf(frame)}`}`;
}

/** The verdict of the picture, or what is known in its place; then what its marks and small points mean. */
function captionHere() {
  const { small } = onStage.look.legend;
  return [verdictHere(), marksHere(), small && `${small}.`].filter(Boolean).join('\n');
}

function verdictHere() {
  const { audit, single, summary } = state;
  if (audit) return textOf(audit);
  if (single || !summary) return '';
  return `The median point keeps ${percent(median(summary.stability))} of its neighbors.`;
}

/** Width and height of the picture: its title, from `top` on the points, then the verdict, then the legend. */
function placesOfPicture() {
  const { overlay, look } = onStage;
  const [width, caption] = [overlay.clientWidth, captionHere()];
  const top = sentenceHeight(titleHere(), width);
  const below = overlay.clientHeight + (caption && sentenceHeight(caption, width));
  return { width, top, below, height: top + below + legendHeight(look, width) };
}

/** Draw the overlay over the points, the title above and the verdict and the legend below them. */
function drawAbove(context) {
  const { plot, xy, look, box, overlay } = onStage;
  const { width, top, below } = placesOfPicture();
  drawMarks(context, { width, height: overlay.clientHeight }, xy, plot.screen(), box, look, colors());
  drawSentence(context, titleHere(), width, -top, colors());
  if (captionHere()) drawSentence(context, captionHere(), width, overlay.clientHeight, colors());
  drawLegend(context, look, width, below, colors());
}

/** Save a page that needs no service: the picture, the verdict, and the table of the selected rows or of all. */
export async function saveHtml() {
  if (!onStage.xy) return 'Show a draw first';
  const [title, verdict, marks, { columns, total }] = [
    escapeHtml(titleHere()),
    escapeHtml(verdictHere()),
    marksHere(),
    tableHere(),
  ]; // a playing picture changes
  const reader = new FileReader();
  const read = new Promise((resolve) => (reader.onload = resolve));
  reader.readAsDataURL(await pngOf());
  await read;
  const rows = Array.from(state.selection?.list ?? Array(total).keys());
  const cells = (tag, texts) => `<tr>${texts.map((text) => `<${tag}>${escapeHtml(text)}</${tag}>`).join('')}</tr>`;
  const text =
    `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" ` +
      `content="width=device-width"><title>${title}</title>
<style>
  body { font: 15px system-ui, sans-serif; margin: 2em; color-scheme: light dark }
  img { max-width: 100% }
  div { overflow: auto; max-height: 80vh }
  table { border-collapse: collapse }
  td, th { padding: 3px 9px; border-bottom: 1px solid #8884; text-align: left }
</style>
<h1>${title}</h1><p style="white-space:pre-line"><strong>${verdict}</strong></p>${marks &&
  `<p>${marks}</p>`}<img alt="${title}" src="${reader.result}">
<p>${rows.length > MAX_ROWS ? `The first ${MAX_ROWS} of ` : ''}${rows.length} rows${state.selection
  ? ` that were selected of ${total}` : ''}.</p>
<div><table><thead>${cells('th', columns.map(({ name }) => name))}</thead><tbody>
${rows.slice(0, MAX_ROWS).map((row) => cells('td', columns.map(({ at }) => at(row))))
  .join('\n')}</tbody></table></div></html>`;
  return save(new Blob([text], { type: 'text/html' }), `${fileName()}.html`);
}

/** Save rows with all columns as CSV; without a list all rows. */
export function saveCsv(list = null) {
  const { columns, total } = tableHere();
  const lines = [
    columns.map(({ name }) => quote(name)),
    ...Array.from(list ?? Array(total).keys(), (row) => columns.map(({ at }) => quote(at(row)))),
  ];
  return save(
    new Blob([`${lines.map((line) => line.join(',')).join('\n')}\n`], { type: 'text/csv' }),
    `${list ? 'selection' : fileName()}.csv`,
  );
}

/** Save the embedding as npy: in full precision, but the average of the draws as the page has it. */
export async function saveNpy() {
  if (isAverage() || (state.single && !state.single.path))
    return save(new Blob([npyOf(embeddingOf(-1), dimension())]), `${fileName()}.npy`);
  return saveWork(async () =>
    save(await (await askMade(arrayPath(), 'application/x-npy', PREPARING)).blob(), `${fileName()}.npy`),
  );
}

const PREPARING = 'Preparing the file';
const isAverage = () => state.frame === -1 && !state.single;
const quote = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);

async function saveWork(work) {
  let said = '';
  await runWork(async () => {
    await work();
    said = 'Saved';
  });
  return said;
}

/** Path of the shown embedding. */
function arrayPath() {
  const { posterior, draws, frame, single } = state;
  if (single) return single.path;
  const here = `/v1/posteriors/${posterior.id}`;
  if (frame > 0) return `${here}/draws/${frame - 1}?seed=${draws.seed}&scale=${draws.scale}`;
  return `${here}/draws/0?scale=0`; // a draw at scale 0 is the reference
}

const fileName = () =>
  (state.single ? state.single.title : titleOf(state.frame)).toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');

/** Download a file. */
function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  return 'Saved';
}

/** Copy text to the clipboard. */
export async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    return said;
  } catch {
    return 'The browser did not allow it';
  }
}

