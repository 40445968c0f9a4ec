/** What an audit says that the picture shows: islands to trust, tears and folds. */

const MAX_FOLDED = 0.5; // share of the points; if more are folded, the fault is not local, and no point is marked

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

/** The rows with a ring: points that lie beside points that are far in the data. */
export function foldedRows({ audit, hidden }) {
  const rows = Array.from(audit.arrays.is_glued.keys()).filter((row) => audit.arrays.is_glued[row]);
  return rows.length > MAX_FOLDED * audit.arrays.is_glued.length ? [] : rows.filter((row) => !hidden?.mask[row]);
}
