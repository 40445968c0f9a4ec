/** Statements of the audit of the shown map. */

import { MAX_AUDITED } from '../actions/audit.js';
import { choosePoints } from '../actions/selection.js';
import { html, number, percent } from '../lib/html.js';
import { foldedRows, isTrusted, tearLines } from '../lib/islands.js';
import { plainNote } from '../lib/remedies.js';
import { SCALES, spokenShare } from '../lib/verdict.js';
import { state, useStore } from '../store.js';

const APART = 0.9; // share of samples from which on two groups count as apart
const MAX_GROUPS = 30; // of a matrix

/** The panel; before an audit that is made without being asked it keeps its place, so that nothing moves. */
export function Audit() {
  const { audit, single, posterior, work, dataset } = useStore('audit', 'single', 'posterior', 'work', 'hidden');
  if (!audit) return work && dataset.n <= MAX_AUDITED &&
    html`<section class="panel awaited"><h2>What the data support</h2><p class="quiet">Being measured</p></section>`;
  const shown = (single ? single.result.notes : posterior?.diagnostics.notes) ?? []; // among the notes on the fit
  const { arrays, beyond_chance: isBeyond, remains, remains_error: error, dimension, groups, islands, notes } = audit;
  const answers = [
    ['arrangement', 'Distances between islands'],
    ['neighborhoods', 'Neighborhoods'],
    ['shape', 'Shapes'],
  ].filter(([name]) => audit[name]);
  const torn = count(arrays.is_torn);
  const folded = count(arrays.is_glued);
  const [lines, rings] = [tearLines(state).length, foldedRows(state).length];
  const { outside = 0 } = islands;
  return html`<section class="panel" data-testid="audit-panel"><h2>What the data support</h2>
    ${(arrays.stability || arrays.p_value) && html`<p class="help">${arrays.stability
      ? 'Small points have other neighbors in other samples.'
        : 'Small points have neighbors no better than random ones.'}</p>`}
    ${remains !== null &&
      html`<p data-testid="audit-remains"
        title=${`R² ${percent(remains)}${error >= 0.005 ? ` ± ${percent(error)}` : ''}`}>A repeat of the study would
        show ${spokenShare(remains)} of this map <span class="quiet">(${percent(remains)}; ${SCALES.remains})</span>
    </p>`}
    <dl class="facts">
      <dt>More than chance</dt><dd data-testid="audit-chance">
        ${isBeyond === null ? 'not decided' : isBeyond ? 'yes' : 'no'}</dd>
      ${dimension !== null && html`<dt>Dimensions</dt><dd>${number(dimension)} shared by two samples</dd>`}
      ${answers.map(([name, title]) =>
        html`<dt>${title}</dt>
          <dd>${percent(audit[name].share)} in another sample <span class="quiet">(${SCALES[name]})</span></dd>`)}
      ${torn > 0 && html`<dt>Torn</dt>
        <dd data-testid="audit-torn">${number(torn)} ${torn === 1 ? 'point lies' : 'points lie'} far
          from ${torn === 1 ? 'its' : 'their'} neighbors${lines > 0 &&
            html`<span data-testid="audit-lines">: ${lines === 1 ? 'an orange line joins'
              : `${number(lines)} orange lines join`} them</span>`}</dd>`}
      ${folded > 0 && html`<dt>Folded</dt>
        <dd data-testid="audit-folded">${number(folded)} ${folded === 1 ? 'point lies' : 'points lie'} beside points
          that are far in the data${rings > 0 &&
            html`<span data-testid="audit-rings">: ${rings === 1 ? `${folded === 1 ? 'it' : 'one'} has an orange ring`
              : `${number(rings)} have an orange ring`}</span>`}</dd>`}
      ${outside > 0 &&
        html`<dt>No island</dt><dd data-testid="audit-outside">
          <button type="button" class="link" onClick=${() => choosePoints(rowsWhere(arrays.island, new Set([-1])))}>
            ${number(outside)} ${outside === 1 ? 'point' : 'points'}</button> in clumps too small to judge</dd>`}
    </dl>
    ${audit.seams?.length > 0 && html`<div data-testid="audit-seams"><h3>Tears and folds</h3>
      <ul class="list">
        ${audit.seams.map(({ kind, sizes }, i) =>
          html`<li key=${i}><button type="button" class="row"
            onClick=${() => choosePoints(rowsWhere(arrays.seam, new Set([i + 1, -i - 1])))}>
        <span>${kind === 'tear' ? 'Torn apart' : 'Laid onto each other'}</span>
          <span class="quiet">${sizes.map((size) => number(size)).join(' and ')} points</span></button></li>`)}</ul>
        </div>`}
    ${islands.names.length > 1 && html`<${Islands} audit=${audit} />`}
    ${groups?.names.length > 1 && html`<${Groups} names=${groups.names.map(String)} apart=${groups.apart} />`}
    ${notes.filter(({ code }) => !shown.some((note) => note.code === code))
      .map((note) => html`<div class="note" data-testid=${`note-${note.code}`}><p>${plainNote(note).text}</p></div>`)}
  </section>`;
}

/** How many flags are set. */
function count(flags) {
  return flags.reduce((sum, flag) => sum + flag, 0);
}

const rowsWhere = (values, wanted) => Array.from(values.keys()).filter((row) => wanted.has(values[row]));

/** The islands of the map; those to be trusted first. A click selects the points. */
function Islands({ audit }) {
  const { islands: { names, sizes, in_data: inData, in_samples: inSamples }, arrays: { island: of } } = audit;
  const stays = Array.from(names.keys(), (i) => Number(isTrusted(audit, i)));
  const order = Array.from(names.keys()).sort(
    (a, b) => stays[b] - stays[a] || (inSamples ? inSamples[b] - inSamples[a] : inData[b] - inData[a]),
  );
  const say = (i) =>
    inSamples
      ? `${percent(inSamples[i])}${inData[i] ? '' : ', not in the data'}`
      : inData[i]
        ? 'apart in the data'
        : 'not apart in the data';
  return html`<div data-testid="audit-islands"><h3>Islands of the map</h3>
    <p class="help">
      ${inSamples ? `Solid outline: trust it (${number(count(stays))} of ${number(names.length)}). Dashed: it ` +
        `changes with the sample, or the data do not have it. The percentage is the share of other samples in which ` +
        `the island is apart: ${SCALES.islands}.`
        : 'All outlines are dashed: coordinates alone say nothing about other samples.'}</p>
    <ul class="list">
      ${order.map((i) =>
        html`<li key=${names[i]}><button type="button" class="row" data-testid="island"
          onClick=${() => choosePoints(rowsWhere(of, new Set([i])))}>
      <span>${stays[i] ? '✓ ' : ''}<strong>${names[i]}
      </strong> <span class="quiet">${number(sizes[i])} points</span></span><span class="quiet">${say(i)}</span>
      </button></li>`)}</ul></div>`;
}

/** Move the focus in the triangle of pairs by the arrow keys, Home and End; it is one stop of Tab. */
function moveInMatrix(event) {
  const lines = Array.from(event.currentTarget.querySelectorAll('tr'), (line) => [
    ...line.querySelectorAll('button'),
  ]).filter((line) => line.length);
  const from = lines.findIndex((line) => line.includes(event.target));
  const at = lines[from]?.indexOf(event.target);
  const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1],
    Home: [0, -at], End: [0, lines[from]?.length - 1 - at] }[event.key] ?? [];
  if (from < 0 || down === undefined) return;
  event.preventDefault();
  event.stopPropagation(); // the keys of the page
  const wanted = lines[from + down]?.[Math.min(at + right, lines[from + down].length - 1)];
  if (!wanted) return;
  for (const button of lines.flat()) button.tabIndex = button === wanted ? 0 : -1;
  wanted.focus();
}

/**
 * Which groups stay apart in other samples: those that do first, and a matrix of the pairs, whose cells select both
 * groups.
 */
function Groups({ names, apart }) {
  const isApart = (i, j) => apart[i][j] >= APART;
  const reach = names.map((_, i) => names.filter((other, j) => i !== j && isApart(i, j)).length);
  const order = Array.from(names.keys()).sort((a, b) => reach[b] - reach[a]).slice(0, MAX_GROUPS);
  const alone = order.filter((i) => reach[i] === names.length - 1);
  const total = (names.length * (names.length - 1)) / 2;
  const choose = (...some) => choosePoints(rowsWhere(state.columns.labels, new Set(some.map((i) => names[i]))));
  return html`<div data-testid="audit-groups"><h3>Groups</h3>
    <p>${number(reach.reduce((sum, one) => sum + one, 0) / 2)} of ${number(total)} pairs stay apart in other
      samples${alone.length > 0 &&
        html`; apart from all
          others: ${alone.map((i, at) =>
            html`${at ? ', ' : ''}<button type="button" class="link" onClick=${() => choose(i)}>${names[i]}
    </button>`)}`}.</p>
    <div class="pairs-box" role="region" aria-label="Pairs of groups: arrow keys move between the cells"
      onKeyDown=${moveInMatrix}><table class="pairs" data-testid="pairs">
        <tbody>${order.map((i, at) =>
          html`<tr key=${names[i]}><th scope="row" title=${names[i]}>${names[i]}</th>
            ${order.slice(0, at).map((j) => html`<td>
      <button type="button" tabindex=${at === 1 && j === order[0] ? 0 : -1} class=${isApart(i, j) ? 'apart' : ''}
        style=${{ '--share': percent(apart[i][j]) }} onClick=${() => choose(i, j)}
        title=${`${names[j]} and ${names[i]}: apart in ${percent(apart[i][j])} of other samples`}
        aria-label=${`${names[j]} and ${names[i]}: apart in ${percent(apart[i][j])} of other samples`}></button>
        </td>`)}</tr>`)}
      <tr aria-hidden="true"><th></th>
        ${order.slice(0, -1).map((i) => html`<th title=${names[i]}><span>${names[i]}</span></th>`)}</tr>
      </tbody></table></div>
    <p class="help">Each cell is a pair of groups: dark if they stay apart, pale if not. Click a cell to select
      both.</p></div>`;
}
