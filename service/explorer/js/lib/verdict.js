/** The verdict of an audit as lines: what to read from the map, what not, what to do first, and why. */

import { inWords } from './remedies.js';

const MARKS = { read: '✓', avoid: '✗', first: '?', why: '' };

/**
 * The lines of a verdict in the words of the page; the reasons have no mark.
 * @param {import('../store.js').Schemas['LineOut'][]} lines
 * @returns {{mark: string, text: string}[]}
 */
export const linesOf = (lines) => lines.map(({ role, parts }) => ({ mark: MARKS[role], text: inWords(parts) }));

/**
 * A verdict as one text, such as a picture has below it.
 * @param {{lines?: import('../store.js').Schemas['LineOut'][], is_preliminary?: boolean}} audit
 */
export const textOf = ({ lines, is_preliminary: isPreliminary }) =>
  (isPreliminary ? 'Preliminary: ' : '') +
  linesOf(lines ?? [])
    .map(({ mark, text }) => (mark === '' || mark === '?' ? text : `${mark} ${text}`))
    .join('\n');

/**
 * What the shares of an audit need to be trusted, for the line beside each; as in
 * glle_engine/reliability/thresholds.py.
 */
export const SCALES = {
  remains: '30% needed for the rough layout, 60% for its details',
  arrangement: '60% needed',
  shape: '60% needed',
  neighborhoods: '30% needed',
  islands: 'four of five are needed, and that the data have it, too',
};

/** A share as people say it: about a third. */
export function spokenShare(share) {
  /** @type {[number, string][]} */
  const words = [[0, 'almost nothing'], [0.1, 'about a tenth'], [0.2, 'about a fifth'], [0.25, 'about a quarter'],
    [1 / 3, 'about a third'], [0.4, 'about two fifths'], [0.5, 'about half'], [0.6, 'about three fifths'],
    [2 / 3, 'about two thirds'], [0.75, 'about three quarters'], [0.8, 'about four fifths'],
    [0.9, 'about nine tenths'], [1, 'almost all']];
  return words.reduce((best, one) => (Math.abs(one[0] - share) < Math.abs(best[0] - share) ? one : best))[1];
}

/** How a verdict was found, in one sentence. */
export function methodOf({ pairs, method, level, blocks }) {
  if (!method) return 'Found by comparing the map with the data alone.';
  return pairs
    ? `Found by making the map again from ${2 * pairs} random halves of the ${blocks
      ? 'groups of rows that belong together' : 'rows'}, and comparing what they share.`
    : level === 'no'
      ? 'Found by comparing the data with copies whose columns were shuffled.'
      : 'Found by comparing the map with the data, and with shuffled copies.';
}
