/** Overlay of the points: regions, density, neighbors, names of groups, and the point under the pointer. */

import { ballOf, boxAlong, boxOf, dimension, directionsOf, embeddingOf, MARGIN, placeOf,
  points } from '../lib/frames.js';
import { foldedRows, isTrusted, tearLines } from '../lib/islands.js';
import { leastCertain } from '../lib/look.js';
import { neighborsOf } from '../actions/selection.js';
import { resizeCanvas } from '../lib/paint.js';
import { newest } from '../lib/background.js';
import { set, state } from '../store.js';
import { islandsOf, nameOutlines, strokeOutlines, traceRings, writeName } from './islands.js';
import { contourOf, momentsOf } from './spread.js';

export const MAX_SHAPES = 50; // of a selection; more would cover each other
// Rows whose regions are shown without a selection: those with the least certain places.
export const SHOWN_REGIONS = 20;
const MAX_NAMES = 20; // groups with their names in the picture
const SAMPLE = 500; // points of a group whose median is taken
const FOLD_RADIUS = 4; // pixels of the ring of a folded point
const BELOW_TITLE = 44; // pixels from the upper edge, below the name of the frame
const TAU = 2 * Math.PI;

/**
 * The rows with a region: the only selected one; as regions an even sample of the selection, or the least certain ones.
 */
export function outlinedRows() {
  const { selection, shape, hidden } = state;
  if (shape !== 'ellipse') return selection?.list.length === 1 ? selection.list : [];
  const list = (selection?.list ?? leastCertain(state, SHOWN_REGIONS)).filter((row) => !hidden?.mask[row]);
  const step = Math.max(1, list.length / MAX_SHAPES);
  return Array.from({ length: Math.min(list.length, MAX_SHAPES) }, (_, i) => list[Math.floor(i * step)]);
}

/** Draw the overlay: `xy` are positions in the box, `screen` maps the box to the page. */
export function drawOverlay(canvas, { width, height }, xy, screen, box, look, colors, isMoving) {
  const context = resizeCanvas(canvas, width, height);
  if (!xy) return;
  const ratio = canvas.width / width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawMarks(context, { width, height }, xy, screen, box, look, colors, isMoving);
  context.setTransform(1, 0, 0, 1, 0, 0);
}

/** Draw the marks of the overlay. */
export function drawMarks(context, { width, height }, xy, screen, box, look, colors, isMoving = false) {
  const p = dimension();
  const view = { screen, box, look, colors, p, directions: directionsOf(p, state.axes, state.turn) };
  const at = (row) => [screen.x + screen.sx * xy[2 * row], screen.y + screen.sy * xy[2 * row + 1]];
  const only = state.selection?.list.length === 1 ? state.selection.list[0] : -1;
  const hover = state.hover < points() ? state.hover : -1;
  const hasSpread = state.draws?.count > 1 && !state.single;
  if (hasSpread && state.shape === 'density') drawDensities(context, view);
  if (!isMoving && showsAudit()) drawAudit(context, at, view);
  if (only >= 0) drawNeighbors(context, at, only, view, 0.75);
  if (hover >= 0 && hover !== only) drawNeighbors(context, at, hover, view, 0.35);
  if (hasSpread) drawContours(context, at, hover, view);
  for (const row of new Set([only, hover])) {
    if (row < 0) continue;
    if (hasSpread) drawPlaces(context, row, view);
    drawRing(context, at(row), colors);
  }
  if (!isMoving) drawNames(context, at, view);
  if (state.turn) drawAxes(context, width, height, view);
}

/** The ellipse of a row's spread on the screen, which shares the frame of the picture; traced as the current path. */
function traceContour(context, row, { screen, box, directions }) {
  const { x, y, long, short, angle } = contourOf(momentsOf(row, state.draws, directions, box));
  const unit = Math.abs(screen.sx);
  context.beginPath();
  context.ellipse(screen.x + screen.sx * x, screen.y + screen.sy * y, long * unit, short * unit, -angle, 0, TAU);
  return [screen.x + screen.sx * x, screen.y + screen.sy * y];
}

/** Thin contours of the chosen rows and of the one under the pointer, with a line from the average to the dot. */
function drawContours(context, at, hover, view) {
  const { palette, index } = view.look;
  const rows = new Set(outlinedRows());
  if (hover >= 0) rows.add(hover);
  context.lineWidth = 1;
  for (const row of rows) {
    const isLoud = row === hover || rows.size <= 2;
    context.strokeStyle = isLoud ? view.colors.ink : palette[index[row]];
    context.globalAlpha = isLoud ? 0.9 : rows.size > 30 ? 0.4 : 0.7;
    const middle = traceContour(context, row, view);
    context.stroke();
    if (!isLoud) continue;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(...middle);
    context.lineTo(...at(row));
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
}

/** The places of a point in all shown draws. */
function drawPlaces(context, row, { screen, box, p, directions, look, colors }) {
  context.fillStyle = look.palette[look.index[row]];
  context.strokeStyle = colors.ink;
  context.lineWidth = 0.8;
  for (let draw = 1; draw <= state.draws.count; draw++) {
    const [x, y] = placeOf(embeddingOf(draw), row, p, directions, box);
    context.beginPath();
    context.arc(screen.x + screen.sx * x, screen.y + screen.sy * y, 3, 0, TAU);
    context.fill();
    context.stroke();
  }
}

let sampled = { index: null, samples: [] };

/** An even sample of the rows of each group. */
function samplesOf({ entries }, index) {
  if (sampled.index !== index) {
    const rows = (entries ?? []).map(() => []);
    if (entries) index.forEach((group, row) => rows[group].push(row));
    const samples = rows.map((some) => some.filter((_, i) => i % Math.ceil(some.length / SAMPLE) === 0));
    sampled = { index, samples };
  }
  return sampled.samples;
}

/** The name of each group at its median place; a name that would cover an earlier one waits for a closer view. */
function drawNames(context, at, { look: { name: colored, legend, index }, colors }) {
  if (colored === 'island') return; // the outlines have the letters
  const hidden = state.hidden?.names;
  const names = (legend.entries ?? []).filter(({ name }) => !hidden?.has(name)).slice(0, MAX_NAMES);
  const samples = samplesOf(legend, index);
  const drawn = [];
  names.forEach(({ name, isRest, index: group }) => {
    if (isRest || !samples[group].length) return;
    const places = samples[group].map(at);
    const [x, y] = [0, 1].map((side) => places.map((place) => place[side]).sort((a, b) => a - b)[places.length >> 1]);
    const half = 4 * name.length + 3; // about half of its width
    if (drawn.some(([u, v, other]) => Math.abs(u - x) < half + other && Math.abs(v - y) < 15)) return;
    drawn.push([x, y, half]);
    writeName(context, name, x, y, colors);
  });
}

/**
 * Contours that the worker traces: the last ones, in their box, until those of changed inputs are there. `follow` gives
 * none while the worker has none of the same picture, which is what `picture` names.
 */
function tracing(name) {
  const ask = newest(name);
  let [key, found, made] = [null, null, Promise.resolve()];
  const isSame = (some, other) => some?.length === other.length && other.every((value, i) => value === some[i]);
  const follow = (picture, details, request) => {
    const wanted = [...picture, ...details];
    if (!isSame(key, wanted)) {
      key = wanted;
      const inputs = request();
      made = ask(inputs).then((traced) => {
        if (!traced) return;
        found = { picture, box: inputs.box, traced };
        set({ traced: state.traced + 1 });
      }).catch((error) => {
        if (isSame(key, wanted)) key = null; // it is asked again
        throw error;
      });
    }
    return isSame(found?.picture, picture) ? found : { box: null, traced: [] };
  };
  return { follow, made: () => made };
}

const densities = tracing('densitiesOf');
const outlines = tracing('outlinesOf');

/** Wait until the contours are those of the picture. */
export const contoursTraced = () => Promise.all([densities.made(), outlines.made()]);

/** The densities of the shown draws, by label, and the box of all draws in which they are. */
export function densitiesHere({ look: { index, legend }, directions }) {
  const { draws: { data, count, n, p }, reference, axes, selection, hidden } = state;
  return densities.follow([data, reference, index, ...directions.flat()], [selection, hidden], () => {
    const all = [reference, data];
    return {
      draws: { data, count, n, p },
      classes: legend.kind === 'classes' ? legend.entries.length : 1,
      index,
      mask: selection?.mask ?? null,
      hidden: hidden?.mask,
      directions,
      box: p === 3 ? boxAlong(ballOf(all, n), directions) : boxOf(all, n, p, axes),
    };
  });
}

/** The outlines of the islands of the audited map, and the box in which they are. */
export function islandsHere({ p, box, directions }) {
  const { audit, hidden } = state;
  const data = embeddingOf(state.frame);
  const islands = islandsOf(audit);
  return outlines.follow(
    [islands.of, data, ...directions.flat()],
    [hidden, ...box.center, ...box.half, islands.isSolid.join()],
    () => ({ islands, data, p, directions, box, hidden: hidden?.mask }),
  );
}

/** The pixel of a place in a box that need not be the box of the picture. */
function pixelIn(box, { screen, box: shown }) {
  const [across, up] = [0, 1].map((side) => (value) =>
    (value * box.half[side] + (box.center[side] - shown.center[side]) * MARGIN) / shown.half[side]);
  return ([x, y]) => [screen.x + screen.sx * across(x), screen.y + screen.sy * up(y)];
}

/**
 * What the audit says, in the picture: islands to trust have solid outlines, others dashed ones; lines join the torn
 * points to their neighbors, and folded points have rings.
 */
function drawAudit(context, at, view) {
  const { colors } = view;
  const { box, traced: islands } = islandsHere(view);
  const place = pixelIn(box, view);
  strokeOutlines(context, islands, place, colors.ink);
  nameOutlines(context, islands, place, colors, { top: BELOW_TITLE });
  context.lineWidth = 1.4;
  context.strokeStyle = colors.accent;
  context.beginPath();
  for (const [row, other] of tearLines(state)) {
    context.moveTo(...at(row));
    context.lineTo(...at(other));
  }
  for (const row of foldedRows(state)) {
    const [x, y] = at(row);
    context.moveTo(x + FOLD_RADIUS, y);
    context.arc(x, y, FOLD_RADIUS, 0, TAU);
  }
  context.stroke();
}

/** Whether the picture shows what the audit says. */
const showsAudit = () =>
  Boolean(state.audit) && state.shape === 'none' && (Boolean(state.single) || state.frame === -1);

/** What the outlines and lines of the picture mean, of those that it has; for saved pictures. */
export function marksHere() {
  if (!showsAudit()) return '';
  const { names } = state.audit.islands;
  const trusted = Array.from(names.keys(), (island) => isTrusted(state.audit, island));
  const isShown = names.length > 1;
  return [
    trusted.some(Boolean) && 'Solid outline: an island to trust, with its letter.',
    isShown && !trusted.every(Boolean) && 'Dashed outline: do not rely on this island.',
    tearLines(state).length > 0 && 'Orange lines join points to the neighbors from which the map tears them.',
    foldedRows(state).length > 0 && 'Orange rings: points that the map lays beside points that are far in the data.',
  ].filter(Boolean).join(' ');
}

/** For each label the contour of the smallest region with half of its places over all draws. */
function drawDensities(context, view) {
  const { look, colors } = view;
  context.lineWidth = 2;
  context.lineCap = 'round';
  const { box, traced } = densitiesHere(view);
  const place = pixelIn(box, view);
  for (const { index, rings } of traced) {
    context.strokeStyle = index < 0 ? colors.ink : look.palette[index];
    traceRings(context, rings, place);
    context.stroke();
  }
}

/** Lines from a point to its neighbors in the data, and their dots. */
function drawNeighbors(context, at, row, { look, colors }, opacity) {
  const rows = neighborsOf(row);
  context.strokeStyle = colors.ink;
  context.lineWidth = 1.2;
  context.globalAlpha = opacity;
  context.beginPath();
  for (const other of rows) {
    context.moveTo(...at(row));
    context.lineTo(...at(other));
  }
  context.stroke();
  context.globalAlpha = 1;
  for (const other of rows) {
    context.fillStyle = look.palette[look.index[other]];
    context.beginPath();
    context.arc(...at(other), 4, 0, TAU);
    context.fill();
  }
}

/** A ring around a point. */
function drawRing(context, place, { ink }) {
  context.strokeStyle = ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(place[0], place[1], 7, 0, TAU);
  context.stroke();
}

/** The three axes of a turned view, at the lower right. */
function drawAxes(context, width, height, { directions: [u, v], colors }) {
  const [x, y, long] = [width - 46, height - 46, 26];
  context.strokeStyle = colors.muted;
  context.fillStyle = colors.muted;
  context.font = '11px system-ui, sans-serif';
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.lineWidth = 1.2;
  for (let axis = 0; axis < 3; axis++) {
    const [dx, dy] = [u[axis], -v[axis]];
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + long * dx, y + long * dy);
    context.stroke();
    context.fillText(String(axis + 1), x + (long + 9) * dx, y + (long + 9) * dy);
  }
}
