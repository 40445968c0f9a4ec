/** What an audit says that the picture shows: islands to trust, tears and folds. */

const MAX_RINGS = 2000; // of folded points
// Share of the points; if more are folded, the fault is not local, and no point is marked; as in
// glle_engine/reliability/thresholds.py.
const MAX_FOLDED = 0.5;

/** Whether the verdict trusts an island; no island of a map that is not trusted at all. */
export const isTrusted = ({ level, islands: { names, stays } }, island) =>
  names.length > 1 && ['trust', 'partly'].includes(level) && Boolean(stays[island]);

/** The pairs of points that are joined by a line: points that the panel counts as torn, with their neighbors. */
export function tearLines({ audit, hidden }) {
  const isTorn = audit.arrays.is_torn;
  return audit.tears.filter(
    ([row, other]) => (isTorn[row] || isTorn[other]) && !hidden?.mask[row] && !hidden?.mask[other],
  );
}

let folded = { flags: null, hidden: null, rows: [] };

/** The rows with a ring: points that lie beside points that are far in the data, or an even sample of them. */
export function foldedRows({ audit, hidden }) {
  const flags = audit.arrays.is_glued;
  if (folded.flags !== flags || folded.hidden !== hidden) {
    const all = Array.from(flags.keys()).filter((row) => flags[row]);
    const shown = all.length > MAX_FOLDED * flags.length ? [] : all.filter((row) => !hidden?.mask[row]);
    const step = Math.ceil(shown.length / MAX_RINGS);
    folded = { flags, hidden, rows: shown.filter((_, i) => i % step === 0) };
  }
  return folded.rows;
}
