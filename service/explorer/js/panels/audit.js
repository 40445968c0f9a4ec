/** Statements of the audit of the shown map. */

import { html, number, percent } from '../lib/html.js';
import { useStore } from '../store.js';

const APART = 0.9; // share of samples from which on two groups count as apart
const MAX_PAIRS = 6;

/** The panel; empty before an audit. */
export function Audit() {
  const { audit } = useStore('audit');
  if (!audit) return null;
  const { arrays, beyond_chance: isBeyond, remains, remains_error: error, dimension, groups, islands, notes } = audit;
  const answers = [['Distances between islands', audit.arrangement], ['Neighborhoods', audit.neighborhoods], ['Shapes', audit.shape]].filter(([, answer]) => answer);
  const torn = count(arrays.is_torn);
  const beyond = arrays.is_point_beyond?.reduce((sum, flag) => sum + flag, 0);
  return html`<section class="panel" data-testid="audit-panel"><h2>What the data support</h2>
    ${(arrays.stability || arrays.p_value) && html`<p class="help">${arrays.stability
      ? 'Small points have other neighbors in other samples.' : 'Small points have no better neighbors than chance gives.'}</p>`}
    <dl class="facts">
      <dt>More than chance</dt><dd data-testid="audit-chance">${isBeyond === null ? 'not decided' : isBeyond ? 'yes' : 'no'}
        ${beyond !== undefined && html` <span class="quiet">${number(beyond)} of ${number(arrays.p_value.length)} points</span>`}</dd>
      ${remains !== null && html`<dt>Remains</dt><dd data-testid="audit-remains">${percent(remains)} in another sample <span class="quiet">${error >= 0.005 ? `± ${percent(error)}` : ''}</span></dd>`}
      ${dimension !== null && html`<dt>Dimensions</dt><dd>${number(dimension)} shared by two samples</dd>`}
      ${islands.names.length > 1 && html`<dt>Islands</dt><dd data-testid="audit-islands">${number(count(islands.in_data))} of ${number(islands.names.length)} are separate in the data${islands.in_samples ? html`, ${number(count(islands.stays))} also in other samples` : ''}</dd>`}
      ${answers.map(([name, { share }]) => html`<dt>${name}</dt><dd>${percent(share)} remains</dd>`)}
      ${torn > 0 && html`<dt>Torn</dt><dd>${number(torn)} points lie far from their neighbors</dd>`}
      ${groups && html`<dt>Groups</dt><dd data-testid="audit-groups">${together(groups)}</dd>`}
    </dl>
    ${notes.map(({ code, message }) => html`<div class="note" data-testid=${`note-${code}`}><p>${message}</p></div>`)}
  </section>`;
}

/** How many flags are set. */
function count(flags) {
  return flags.reduce((sum, flag) => sum + flag, 0);
}

/** The groups that other samples do not hold apart. */
function together({ names, apart }) {
  const pairs = names.flatMap((name, i) => names.slice(0, i).map((other, j) => [other, name, apart[i][j]]));
  const close = pairs.filter(([, , share]) => share < APART).sort((a, b) => a[2] - b[2]);
  if (!close.length) return `all ${number(names.length)} are apart in other samples`;
  const words = close.slice(0, MAX_PAIRS).map(([a, b, share]) => `${a} and ${b} (${percent(share)})`);
  const more = close.length > MAX_PAIRS ? `, and ${number(close.length - MAX_PAIRS)} more pairs` : '';
  return `${number(pairs.length - close.length)} of ${number(pairs.length)} pairs are apart in other samples. Not always: ${words.join(', ')}${more}`;
}
