/** Appearance of the points, and facts about the point under the pointer. */

import { SHOWN_REGIONS, MAX_SHAPES } from '../plot/overlay.js';
import { choosePoints, namesOf, neighborsOf } from '../actions/selection.js';
import { dimension, points } from '../lib/frames.js';
import { useComputed } from '../lib/background.js';
import { hasDates } from '../lib/columns.js';
import { date, html, number, percent, useRef, useState } from '../lib/html.js';
import { nearestOf, whyNoNearest } from '../lib/nearest.js';
import { labelOf } from '../lib/titles.js';
import { addColumns, rowsWith } from '../actions/metadata.js';
import { certaintyOf, choices, leastCertain, LOOK, resolveColor } from '../lib/look.js';
import { contentChoices, resolveContent } from '../lib/pictures.js';
import { Content } from '../views/content.js';
import { Legend } from '../views/legend.js';
import { set, state, useStore } from '../store.js';
import { Audit } from './audit.js';
import { Filters } from './filters.js';
import { Notes } from './notes.js';

const NEIGHBORS = 12;
const NEAREST = 10; // rows in the data and on the map
const isTouch = matchMedia('(hover: none)').matches;
/** @type {[import('../store.js').State['shape'], string][]} */
const SHAPES = [['none', 'Points'], ['ellipse', 'Regions'], ['density', 'Density']];

/** The panel. */
export function Inspector() {
  const { reference, single, comparison, view } = useStore('reference', 'single', 'comparison', 'view');
  if (!reference && !single && !comparison) return null;
  return html`<aside class="inspector" aria-label="Look closer" data-testid="inspector">
    <${Appearance} /><${Filters} />
    ${view === 'compare' ? html`<${Point} />` : html`<${Audit} /><${Point} /><${LeastCertain} />
      ${single && html`<${Scores} />`}<${Notes} />`}
  </aside>`;
}

/** Scores of the shown embedding. */
function Scores() {
  const { single } = useStore('single');
  const scores = Object.entries(single.result.scores ?? {});
  return scores.length > 0 && html`<section class="panel" data-testid="single-scores"><h2>Scores</h2>
    <dl class="facts">${scores.map(([name, value]) => html`<dt>${labelOf(name)}</dt><dd>${number(value)}</dd>`)}</dl>
    </section>`;
}

/** Color, shape of the spread, axes. */
function Appearance() {
  const state = useStore(
    'shape', 'dataset', 'axes', 'turn', 'selection', 'posterior', 'single', 'view', 'work', 'content', ...LOOK,
  );
  const contents = contentChoices(state);
  const { axes, selection, single, view } = state;
  const shape = view === 'draws' && !single ? state.shape : 'none';
  const p = dimension();
  const count = selection?.list.length ?? 0;
  return html`<section class="panel">
    <h2>Look</h2>
    <div class="field wide"><label for="color">Color by</label>
      <select id="color" data-testid="color" value=${resolveColor(state)}
        onChange=${(event) => set({ color: event.target.value, hidden: null })}>
        ${choices(state).map(([name, title]) =>
          html`<option value=${name} selected=${name === resolveColor(state)}>${title}</option>`)}
      </select></div>
    ${contents.length > 1 && html`<div class="field wide"><label for="content">Show of a row</label>
      <select id="content" data-testid="content" value=${resolveContent(state)}
        onChange=${(event) => set({ content: event.target.value })}>
        ${contents.map(([name, title]) =>
          html`<option value=${name} selected=${name === resolveContent(state)}>${title}</option>`)}
      </select></div>`}
    <label class="add-columns"><input type="file" class="unseen" data-testid="add-columns" accept=".csv,.tsv,.txt,.npy"
      onChange=${(event) => {
        const [file] = event.target.files;
        event.target.value = '';
        if (file) addColumns(file);
      }} /><span>+ Add columns from a file</span></label>
    ${state.view !== 'draws' && html`<${Legend} />`}
    ${state.view !== 'compare' && !single && state.posterior &&
      html`<div class="field wide"><span class="label" id="spread-label">Spread as</span>
      <div class="segmented" role="group" aria-labelledby="spread-label">
        ${SHAPES.map(([name, title]) => html`<button type="button" data-testid=${`shape-${name}`}
          aria-pressed=${state.shape === name} onClick=${() => set({ shape: name })}>${title}</button>`)}
      </div></div>`}
    ${shape === 'ellipse' &&
      html`<p class="help">An outline is expected to hold half of the positions of its point.</p>`}
    ${shape === 'density' &&
      html`<p class="help">For each label: the smallest region that holds half of its positions in all draws.</p>`}
    ${shape === 'ellipse' && !selection &&
      html`<p class="help">Outlined are the ${SHOWN_REGIONS} least certain points. Point at others, or select them,
        to see theirs.</p>`}
    ${shape === 'ellipse' && count > MAX_SHAPES &&
      html`<p class="help">Regions are shown for ${MAX_SHAPES} evenly chosen points of the selection.</p>`}
    ${p === 1 && html`<p class="help">The dimension runs from left to right. Vertically, the points are in the order
      of the rows.</p>`}
    ${p > 2 && html`<div class="field wide"><span class="label">Axes</span><span class="axes">
      ${[0, 1].map((side) => html`<select aria-label=${side ? 'Upward' : 'To the right'} data-testid=${`axis-${side}`}
        value=${axes[side]} onChange=${(event) => {
          const changed = [...state.axes];
          changed[side] = Number(event.target.value);
          set({ axes: changed, turn: null });
        }}>${Array.from({ length: p },
          (_, i) => html`<option value=${i} selected=${i === axes[side]}>${i + 1}</option>`)}</select>`)}
    </span></div>`}
    ${p === 3 && html`<p class="help">Drag the picture to turn it, or use Alt and the arrow
      keys.${state.turn && html` <button type="button" class="link" data-testid="straighten"
      onClick=${() => set({ turn: null })}>Straighten</button>`}</p>`}
  </section>`;
}

/** The point under the pointer, or the only selected one, or the number of selected points. */
function Point() {
  const state = useStore('hover', 'selection', 'columns', 'metadata', 'summary', 'audit', 'neighbors', 'dataset');
  const { hover, selection, columns, summary, audit } = state;
  const [missed, setMissed] = useState('');
  const rowField = useRef(null);
  const textField = useRef(null);
  const row = hover >= 0 ? hover : selection?.list.length === 1 ? selection.list[0] : -1;
  const find = (event) => {
    const wanted = event.target.valueAsNumber;
    if (wanted >= 0 && wanted < points()) choosePoints([wanted]);
    if (textField.current) textField.current.value = '';
    setMissed('');
  };
  const search = (event) => {
    const rows = rowsWith(event.target.value);
    rowField.current.value = '';
    choosePoints(rows);
    setMissed(event.target.value.trim() && !rows.length ? event.target.value.trim() : '');
  };
  return html`<section class="panel point" data-testid="point">
    <div class="panel-head"><h2>${row >= 0 ? `Row ${number(row)}` : 'Point'}</h2>
      <label class="find">Row <input type="number" min="0" max=${points() - 1} data-testid="find-row"
        aria-label="Select a row by its number, from 0"
        ref=${rowField} onChange=${find} /></label></div>
    ${(columns?.ids || columns?.labels || state.metadata) &&
      html`<label class="find wide">Search <input type="text" data-testid="find-label"
      placeholder="id, label or text" ref=${textField} onChange=${search} /></label>`}
    ${missed && html`<p class="quiet" role="status" data-testid="not-found">No row has “${missed}”.</p>`}
    ${row < 0 && selection &&
      html`<p data-testid="selected"><strong>${number(selection.list.length)}</strong> points selected
      ${summary ? html`, which keep <strong>${percent(mean(summary.stability, selection.list))}
      </strong> of their neighbors` : ''}.
      <button type="button" class="link" onClick=${() => choosePoints([])}>Clear</button></p>`}
    ${row < 0 && !selection &&
      html`<p class="quiet">Point at a dot to see its row and its
        neighbors. ${isTouch ? 'Press ◌ and draw around several to select them.'
          : 'Hold Shift and drag to select several, in any view.'}</p>`}
    ${row >= 0 && html`<${Content} row=${row} />`}
    ${row >= 0 && html`<dl class="facts">
      ${columns?.ids && html`<dt>Id</dt><dd data-testid="point-id">${columns.ids[row]}</dd>`}
      ${columns?.labels && html`<dt>Label</dt><dd data-testid="point-label">${columns.labels[row]}</dd>`}
      ${columns?.colors && html`<dt>Color</dt><dd data-testid="point-color">${
        (hasDates(state.dataset) ? date : number)(columns.colors[row])}</dd>`}
      ${summary && html`<dt>Stability</dt>
        <dd data-testid="point-stability">${percent(summary.stability[row])} of its neighbors stay</dd>
        <dt>Spread</dt><dd>${number(summary.spread[row])}${' '}
          <span class="quiet">${rank(summary.spread, row)}</span></dd>`}
      ${audit?.arrays.p_value &&
        html`<dt>Chance</dt><dd data-testid="point-p-value">p = ${number(audit.arrays.p_value[row])}</dd>`}
      ${audit?.arrays.stability &&
        html`<dt>Stays</dt><dd data-testid="point-stays">
          ${percent(audit.arrays.stability[row])} of its neighbors in another sample</dd>`}
      <${Nearest} row=${row} />
      ${state.neighbors && html`<dt>Neighbors</dt><dd class="neighbors" data-testid="point-neighbors">
        <${NeighborChips} rows=${neighborsOf(row)} /></dd>`}
    </dl>`}
  </section>`;
}

/** The rows with the least certain places; a click selects one. */
function LeastCertain() {
  const state = useStore('summary', 'audit', 'single', 'columns', 'selection', 'posterior');
  const certainty = certaintyOf(state);
  if (!certainty && (state.single || !state.posterior)) return null;
  // The panel keeps its place before the draws are there.
  const { shares, where } = certainty ?? { where: 'from draw to draw' };
  const rows = leastCertain(state, SHOWN_REGIONS);
  const chosen = state.selection?.list;
  return html`<section class="panel" data-testid="least-certain">
    <div class="panel-head"><h2>Least certain</h2>
      <button type="button" class="link" data-testid="select-least"
        onClick=${() => choosePoints(rows)}>Select all</button></div>
    <p class="help">${where ? `The rows that keep the fewest neighbors ${where}.`
      : 'The rows whose neighbors are closest to random ones, with their p-value.'}</p>
    <ul class="list">
      ${rows.map((row) =>
        html`<li key=${row}><button type="button" class="row" aria-current=${chosen?.length === 1 && chosen[0] === row}
      onClick=${() => choosePoints([row])}><span>${namesOf(row).join(' · ')}</span>
        <span class="quiet">${where ? percent(shares[row]) : number(1 - shares[row], 2)}</span></button></li>`)}</ul>
  </section>`;
}

/**
 * The nearest rows in the data and on each shown map; rows in one list only are marked: the map has torn them off, or
 * put them there.
 */
function Nearest({ row }) {
  const { hover, frame, single, draws, columns, comparison, view } = useStore('frame', 'single', 'posterior', 'columns',
    'hover', 'comparison', 'view');
  const found = useComputed(() => nearestOf(row, NEAREST),
    [row, frame, single, draws, columns, comparison?.places, view]);
  const why = columns && whyNoNearest();
  if (why) return html`<dt>Nearest</dt><dd class="quiet" data-testid="no-nearest">${why}</dd>`;
  if (!found) return null;
  const { inData, maps } = found;
  const onMaps = new Set(maps.flatMap(({ rows }) => rows));
  const list = (rows, isBoth, said) => rows.map((other) => html`<button type="button" key=${other}
    class=${`chip small${isBoth(other) ? '' : ' only'}`} onClick=${() => choosePoints([other])}
    title=${`${namesOf(other).join(' · ')}${isBoth(other) ? '' : `: ${said}`}`}>
    ${state.columns?.ids?.[other] ?? other}</button>`);
  return html`<dt>Nearest in the data</dt><dd class="neighbors" data-testid="nearest-data">
      ${list(inData, (other) => onMaps.has(other), `not near on ${maps.length > 1 ? 'any map' : 'the map'}`)}</dd>
    ${maps.map(({ title, rows }) => html`<dt>Nearest on ${title}</dt><dd class="neighbors" data-testid="nearest-map">
      ${list(rows, (other) => inData.includes(other), 'not near in the data')}
      <span class="quiet" data-testid="nearest-both">
        ${`${rows.filter((other) => inData.includes(other)).length} of ${inData.length} are in both`}</span></dd>`)}
    <dt></dt><dd class="quiet">Framed ones are near in the data or on a map only.</dd>
    ${hover < 0 && html`<dt></dt><dd class="buttons">
      <button type="button" class="link" data-testid="select-nearest"
        onClick=${() => choosePoints([row, ...inData])}>Select the nearest in the data</button></dd>`}`;
}

/** The nearest neighbors, each a link to its row. */
function NeighborChips({ rows }) {
  return html`${rows.slice(0, NEIGHBORS).map((other) => html`<button type="button" class="chip small"
    onClick=${() => choosePoints([other])}>${other}</button>`)}
    ${rows.length > NEIGHBORS && html`<span class="quiet">and ${rows.length - NEIGHBORS} more</span>`}`;
}

const mean = (values, rows) => rows.reduce((sum, row) => sum + values[row], 0) / rows.length;

/** Rank of a spread among all points. */
function rank(spread, row) {
  let below = 0;
  for (const value of spread) if (value < spread[row]) below++;
  const share = below / spread.length;
  if (share > 0.9) return 'among the widest tenth';
  if (share < 0.1) return 'among the narrowest tenth';
  return share > 0.5 ? 'wider than most' : 'narrower than most';
}
