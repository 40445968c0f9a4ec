/** What an audit says that the picture shows: islands to trust, and tears. */

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
