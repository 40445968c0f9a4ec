/** Outlines of the islands of an audited map. */

import { placeOf } from '../lib/frames.js';
import { isTrusted } from '../lib/islands.js';
import { contourOf, mainPieces } from './density.js';

const SHARE = 0.97; // of an island's points within its outline
const BANDWIDTHS = [0.03, 0.045, 0.065]; // in the box; the first that joins the pieces of an island
const DASH = [7, 5]; // pixels of a dashed outline and of its gaps

/**
 * The outline of each island of a map in a box, as rings in it; of a single island there is none. `hidden` marks the
 * rows that are not shown.
 * @param {{islands: {names: string[], isSolid: boolean[], of: Float32Array}, data: Float32Array, p: number,
 *   directions: [number[], number[]], box: object, hidden?: Uint8Array}} inputs - `islands` as `islandsOf` gives them
 */
export function outlinesOf({ islands: { names, isSolid, of }, data, p, directions, box, hidden }) {
  if (names.length < 2) return [];
  const rows = names.map(() => []);
  of.forEach((island, row) => island >= 0 && !hidden?.[row] && rows[island].push(row));
  return names.map((name, island) => ({
    name,
    isSolid: isSolid[island],
    rings: rows[island].length > 2
      ? outlineOf(rows[island].map((row) => placeOf(data, row, p, directions, box))) : [],
  }));
}

/** The islands of an audit: their names, which of them to trust, and the island of each row. */
export function islandsOf(audit) {
  const { islands: { names }, arrays: { island: of } } = audit;
  return { names, isSolid: names.map((_, island) => isTrusted(audit, island)), of };
}

/** The rings of some places: the smoothest outline that makes them one piece, or their main pieces if none does. */
function outlineOf(places) {
  const tries = BANDWIDTHS.map((bandwidth) => () => contourOf(places, { share: SHARE, bandwidth }));
  for (const trace of tries) {
    const polygons = trace();
    if (polygons.length === 1) return polygons[0];
  }
  return mainPieces(tries.at(-1)()).flat();
}

/**
 * Stroke the outlines: solid ones are to be trusted. `place` maps the box to the canvas, `unit` is a pixel of the page.
 */
export function strokeOutlines(context, outlines, place, ink, unit = 1) {
  context.strokeStyle = ink;
  for (const { isSolid, rings } of outlines) {
    if (!rings.length) continue; // all its points are hidden
    context.lineWidth = (isSolid ? 2 : 1.2) * unit;
    context.setLineDash(isSolid ? [] : DASH.map((length) => length * unit));
    context.globalAlpha = isSolid ? 1 : 0.7;
    traceRings(context, rings, place);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

/** Twice the area of a ring, negative for one that turns clockwise. */
const areaOf = (ring) =>
  ring.reduce((sum, [x, y], i) => sum + ring.at(i - 1)[0] * y - x * ring.at(i - 1)[1], 0);

/** Write the letter of each island above each piece of its outline, and within the picture, from `top` on. */
export function nameOutlines(context, outlines, place, colors, { unit = 1, top = 9 } = {}) {
  for (const { name, rings } of outlines) {
    for (const ring of rings.filter((one) => areaOf(one) * areaOf(rings[0]) > 0)) { // a hole turns the other way
      const [x, y] = place(ring.reduce((best, point) => (point[1] > best[1] ? point : best)));
      writeName(context, name, x, Math.max(top * unit, y - 10 * unit), colors, unit);
    }
  }
}

/** Write a name over the picture. */
export function writeName(context, name, x, y, { surface, ink }, unit = 1) {
  Object.assign(context, { font: `600 ${13 * unit}px system-ui, sans-serif`, textAlign: 'center',
    textBaseline: 'middle', lineJoin: 'round', lineWidth: 4 * unit, strokeStyle: surface, fillStyle: ink });
  context.strokeText(name, x, y);
  context.fillText(name, x, y);
  context.strokeStyle = ink;
}

/** Trace closed rings in the box as the current path. */
export function traceRings(context, rings, place) {
  context.beginPath();
  for (const ring of rings) {
    ring.forEach((point, i) => (i ? context.lineTo(...place(point)) : context.moveTo(...place(point))));
    context.closePath();
  }
}
