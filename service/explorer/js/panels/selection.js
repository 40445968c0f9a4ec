/** The selected rows: what distinguishes them, and their table. */

import { saveCsv } from '../actions/export.js';
import { choosePoints } from '../actions/selection.js';
import { date, html, number, percent } from '../lib/html.js';
import { newest, useComputed } from '../lib/background.js';
import { columnsOfData, tableHere } from '../lib/rows.js';
import { useStore } from '../store.js';

const MAX_ROWS = 100;
const MAX_COLUMNS = 60;
const MOST = 6; // columns that distinguish the selection
const ask = newest('distinguishing');

/** The panel below the picture; empty without a selection. */
export function Selection() {
  const { selection, columns, metadata, view } = useStore(
    'selection',
    'columns',
    'metadata',
    'view',
    'summary',
    'audit',
    'single',
    'frame',
  );
  const found = useComputed(
    () => (selection && columns ? ask({ columns: columnsOfData(), ...selection, most: MOST }) : null),
    [selection, columns, metadata],
  ) ?? [];
  if (!selection || !columns || view === 'compare') return null;
  const shown = tableHere().columns.slice(0, MAX_COLUMNS);
  const cell = (value) => (typeof value === 'number' ? number(value) : (value ?? ''));
  const say = (value, word, isDate) =>
    isDate ? date(86400 * Math.round(value / 86400)) : word === undefined ? number(value) : percent(value);
  const count = selection.list.length;
  return html`<section class="panel selection" data-testid="selection" aria-label="Selected rows">
    <div class="panel-head"><h2>${number(count)} selected ${count === 1 ? 'row' : 'rows'}</h2>
      <button type="button" data-testid="export-selection" title="These rows with all columns"
        onClick=${() => saveCsv(selection.list)}>CSV</button></div>
    ${found.length > 0 &&
      html`<h3>What distinguishes ${count === 1 ? 'it' : 'them'}</h3>
        <dl class="facts" title="SD: standard deviations of the column" data-testid="distinguishes">
          ${found.map(({ name, inside, outside, difference, ...as }) => html`
      <dt>${name}${as.word !== undefined && `: ${as.word}`}</dt>
        <dd>${say(inside, as.word, as.isDate)} <span
          class="quiet">here, ${say(outside, as.word, as.isDate)} in the others
          (${difference > 0 ? '+' : '−'}${number(Math.abs(difference), 2)} SD)</span></dd>`)}</dl>`}
    <div class="table" tabindex="0" role="region" aria-label="Table of the selected rows"
      data-testid="selected-rows"><table>
      <thead><tr>${shown.map(({ name }) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${Array.from(selection.list.slice(0, MAX_ROWS),
        (row) => html`<tr key=${row}>${shown.map(({ name, at }) => html`<td>${name === 'row'
        ? html`<button type="button" class="link" onClick=${() => choosePoints([row])}>${row}</button>`
          : cell(at(row))}</td>`)}</tr>`)}</tbody></table></div>
    ${count > MAX_ROWS && html`<p class="quiet">The first ${MAX_ROWS} rows. The CSV has all.</p>`}
  </section>`;
}
