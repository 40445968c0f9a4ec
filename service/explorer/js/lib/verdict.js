/** The verdict of an audit as lines: what to read from the map, what not, and why; and the steps that it asks for. */

/**
 * The lines of a verdict, which says first what to do, and then why.
 * @param {string} verdict
 * @returns {{mark: string, text: string}[]} the mark is ✓, ✗, ? or empty, for a reason
 */
export function linesOf(verdict, level) {
  const [first] = verdict.match(/^.*?\.(?= |$)/s) ?? [verdict];
  const why = verdict.slice(first.length).trim();
  const [action, except] = first.slice(0, first.endsWith('.') ? -1 : undefined).split('; do not read ');
  const mark = /^(Trust|Read) /.test(action) ? '✓' : level === 'unknown' ? '?' : '✗';
  return [
    { mark, text: `${action}.` },
    ...(except ? [{ mark: '✗', text: `Do not read ${except}.` }] : []),
    ...(why ? [{ mark: '', text: why }] : []),
  ];
}

/** What a verdict asks for before it can say more: "method", "standardize", "blocks", or null. */
export function askedBy(verdict) {
  if (/^(Give the method|Audit these coordinates)/.test(verdict)) return 'method';
  if (verdict.startsWith('Standardize the features')) return 'standardize';
  return /^Before you rely on this map, (give|name)/.test(verdict) ? 'blocks' : null;
}

const LIMITS = { trust: 0.6, partly: 0.3, stays: 0.875, group: 0.9 }; // as in glle_engine/reliability/thresholds.py

/** What the shares of an audit have to reach, for the line beside each. */
export const SCALES = {
  remains: `trusted from ${LIMITS.trust * 100}% on, nothing below ${LIMITS.partly * 100}%`,
  arrangement: `trusted from ${LIMITS.trust * 100}% on`,
  shape: `trusted from ${LIMITS.trust * 100}% on`,
  neighborhoods: `trusted from ${LIMITS.partly * 100}% on`,
  islands: `trusted from ${Math.floor(LIMITS.stays * 100)}% on, if the data have it, too`,
};

/** A share as people say it: about a third. */
export function spokenShare(share) {
  const words = [[0, 'almost nothing'], [0.1, 'about a tenth'], [0.2, 'about a fifth'], [0.25, 'about a quarter'], [1 / 3, 'about a third'], [0.4, 'about two fifths'], [0.5, 'about half'], [0.6, 'about three fifths'], [2 / 3, 'about two thirds'], [0.75, 'about three quarters'], [0.8, 'about four fifths'], [0.9, 'about nine tenths'], [1, 'almost all']];
  return words.reduce((best, one) => (Math.abs(one[0] - share) < Math.abs(best[0] - share) ? one : best))[1];
}

/** How a verdict was found, in one sentence. */
export function methodOf({ pairs, method, level }) {
  if (!method) return 'Found by comparing the map with the data alone.';
  return pairs ? `Found by making the map again from ${2 * pairs} random halves of the rows, and comparing what they share.` : level === 'no' ? 'Found by comparing the data with copies whose columns were shuffled.' : 'Found by comparing the map with the data, and with shuffled copies.';
}
