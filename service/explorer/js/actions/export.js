/** Files of the shown picture and of its arrays. */

import { askMade } from '../jobs.js';
import { embeddingOf, titleOf } from '../lib/frames.js';
import { npyOf } from '../lib/npy.js';
import { paint } from '../lib/paint.js';
import { parseCsv } from './metadata.js';
import { colors } from '../lib/theme.js';
import { runWork } from './state.js';
import { drawLegend, drawSentence, legendHeight, sentenceHeight } from '../plot/legend.js';
import { drawMarks } from '../plot/overlay.js';
import { sizeOf } from '../plot/size.js';
import { SvgContext } from '../plot/svg.js';
import { onStage } from '../views/stage.js';
import { state } from '../store.js';

const SIDE = 1200; // pixels of a saved picture

/** Save the picture as PNG, as it is on the screen. */
export async function savePng() {
  const { plot, xy, look, overlay } = onStage;
  if (!plot || !xy) return 'Show a draw first';
  const [width, height] = sizeOfPicture();
  const factor = Math.max(1, SIDE / Math.max(width, overlay.clientHeight));
  const [picture, dots] = [1, 2].map(() => Object.assign(document.createElement('canvas'), { width: width * factor, height: height * factor }));
  const screen = Object.fromEntries(Object.entries(plot.screen()).map(([name, value]) => [name, value * factor]));
  const { size, opacity } = sizeOf(xy.length / 2);
  paint(dots.getContext('2d'), xy, screen, look, { radius: (size / 2) * factor, mask: state.selection?.mask, opacity });
  const context = picture.getContext('2d');
  context.fillStyle = colors().surface;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(dots, 0, 0);
  context.scale(factor, factor);
  drawAbove(context);
  return save(await new Promise((resolve) => picture.toBlob(resolve, 'image/png')), `${fileName()}.png`);
}

/** Height of the points, with the legend below them where the stage has it there. */
function heightOfStage() {
  const { overlay, look, isNarrow } = onStage;
  return overlay.clientHeight + (isNarrow ? legendHeight(look) : 0);
}

/** Width and height of the picture, with the verdict below it. */
function sizeOfPicture() {
  const [width, verdict] = [onStage.overlay.clientWidth, state.audit?.verdict];
  return [width, heightOfStage() + (verdict ? sentenceHeight(verdict, width) : 0)];
}

/** Draw the overlay and the legend over the points, and the verdict below them, by a context of a canvas or of SVG. */
function drawAbove(context) {
  const { plot, xy, look, box, overlay } = onStage;
  drawMarks(context, { width: overlay.clientWidth, height: overlay.clientHeight }, xy, plot.screen(), box, look, colors());
  drawLegend(context, look, heightOfStage(), colors());
  if (state.audit?.verdict) drawSentence(context, state.audit.verdict, overlay.clientWidth, heightOfStage(), colors());
}

/** Save the points as circles of an SVG, with the overlay and the legend. */
export function saveSvg() {
  const { xy, look, plot } = onStage;
  if (!plot || !xy) return 'Show a draw first';
  const { x, y, sx, sy } = plot.screen();
  const { size, opacity } = sizeOf(xy.length / 2);
  const [width, height] = sizeOfPicture();
  const mask = state.selection?.mask;
  const groups = look.palette.map(() => []);
  for (let i = 0; i < xy.length / 2; i++) {
    const faint = mask && !mask[i] ? ' opacity=".25"' : '';
    const place = `cx="${(x + sx * xy[2 * i]).toFixed(2)}" cy="${(y + sy * xy[2 * i + 1]).toFixed(2)}"`;
    groups[look.index[i]].push(`<circle ${place} r="${size / 2}"${faint}/>`);
  }
  const drawn = groups.map((circles, i) => circles.length && `<g fill="${look.palette[i]}">${circles.join('')}</g>`);
  const above = new SvgContext();
  drawAbove(above);
  const text = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`,
    `<title>${titleOf(state.frame)}</title><rect width="100%" height="100%" fill="${colors().surface}"/>`,
    `<g fill-opacity="${opacity}">${drawn.filter(Boolean).join('\n')}</g>`,
    `<g id="above">${above.elements.join('\n')}</g></svg>`,
  ].join('\n');
  return save(new Blob([text], { type: 'image/svg+xml' }), `${fileName()}.svg`);
}

/** Save the embedding as npy: in full precision, but the average of the draws as the page has it. */
export async function saveNpy() {
  if (isAverage()) return save(new Blob([npyOf(embeddingOf(-1), state.draws.p)]), `${fileName()}.npy`);
  return saveWork(async () => save(await (await askMade(arrayPath(), 'application/x-npy', PREPARING)).blob(), `${fileName()}.npy`));
}

/** Save the embedding as CSV: row, id, coordinates, label, color, further columns, spread and stability. */
export async function saveCsv() {
  return saveWork(async () => {
    const lines = isAverage() ? linesOf(embeddingOf(-1), state.draws.p)
      : linesWithoutIds(await (await askMade(arrayPath(), 'text/csv', PREPARING)).text());
    const { columns, metadata, summary, single } = state;
    const beside = {
      ...(columns?.labels && { label: columns.labels }),
      ...(columns?.color && { color: columns.color }),
      ...metadata,
      ...(summary && !single && { spread: summary.spread, stability: summary.stability }),
    };
    const cells = (first, pick) => [first, ...Object.entries(beside).map(([name, values]) => quote(pick(name, values)))].join(',');
    const [head, ...rows] = lines;
    const text = [
      `row,${columns?.ids ? 'id,' : ''}${cells(head, (name) => name)}`,
      ...rows.map((line, row) => `${row},${columns?.ids ? `${quote(columns.ids[row])},` : ''}${cells(line, (_, values) => values[row])}`),
    ];
    save(new Blob([`${text.join('\n')}\n`], { type: 'text/csv' }), `${fileName()}.csv`);
  });
}

const PREPARING = 'Preparing the file';
const isAverage = () => state.frame === -1 && !state.single;
const quote = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);

/** An embedding as lines of CSV, with its header. */
function linesOf(embedding, p) {
  const names = Array.from({ length: p }, (_, j) => `y${j + 1}`).join(',');
  return [names, ...Array.from({ length: embedding.length / p }, (_, row) => embedding.subarray(row * p, (row + 1) * p).join(','))];
}

/** The lines of a table without its columns of ids, which may be quoted. */
function linesWithoutIds(text) {
  const [head, ...rows] = parseCsv(text);
  const ids = head.filter((name) => /^id(_\d+)?_*$/.test(name)).length;
  return [head, ...rows].map((cells) => cells.slice(ids).join(','));
}

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
  if (frame > 0) return `${here}/draws/${draws.first + frame - 1}?seed=${draws.seed}&scale=${draws.scale}`;
  return `${here}/draws/0?scale=0`; // a draw at scale 0 is the reference
}

const fileName = () => (state.single ? state.single.title : titleOf(state.frame)).toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');

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

