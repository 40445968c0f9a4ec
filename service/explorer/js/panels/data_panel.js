/** Step one: the data. */

import { auditMap, headOf, isTable, MAP, mapOf, previewPending, synthesise, uploadPending } from '../actions/data.js';
import { openDataset } from '../actions/open.js';
import { clearResults } from '../actions/state.js';
import { html, number, useEffect, useState } from '../lib/html.js';
import { inWords, ROLES } from '../lib/remedies.js';
import { set, state, useStore } from '../store.js';
import { labelOf, SchemaForm } from './schema_form.js';

/** Preview a chosen or dropped file; the upload follows the choice of its columns. */
export async function take(file) {
  if (!isTable(file.name)) {
    set({
      problem: {
        title: 'This file cannot be read',
        detail: `${file.name} is neither CSV, TSV, xlsx, npy, npz, Parquet, Feather, Arrow nor JSON, nor one of these as .gz or .zst.`,
        remedy: 'Save the table as CSV, one row a line, and drop it here.',
        details: {},
      },
    });
    return;
  }
  clearResults();
  set({ problem: null, dataset: null, preview: null, columns: null, metadata: null, isSetUp: true });
  set({ pending: { file, head: await headOf(file), shown: null, roles: {}, only: '', delimiter: '', missing: '' } });
  await previewPending();
  set({ announcement: `${file.name} is ready to be sent.` });
}

/** The panel. */
export function DataPanel() {
  const { dataset, pending, recent } = useStore('dataset', 'pending', 'recent', 'work');
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [dataset]); // also of a dropped file
  if (pending) return html`<section class="panel" data-testid="data-panel"><h2>1 · Data</h2><${Pending} /></section>`;
  if (dataset && !isOpen) {
    return html`<section class="panel" data-testid="data-panel">
      <div class="panel-head"><h2>1 · Data</h2>
        <button type="button" class="link" data-testid="change-data" onClick=${() => setOpen(true)}>Change</button></div>
      <${Chosen} />
    </section>`;
  }
  return html`<section class="panel" data-testid="data-panel">
    <div class="panel-head"><h2>1 · Data</h2>
      ${dataset && html`<button type="button" class="link" onClick=${() => setOpen(false)}>Keep</button>`}</div>
    <${Drop} /><${Synthetic} />
    ${recent.length > 0 && html`<${Recent} items=${recent} />`}
  </section>`;
}

/** Drop zone for a file. */
function Drop() {
  const heard = (event) => {
    const [file] = event.target.files;
    event.target.value = '';
    if (file) take(file);
  };
  return html`<label class="drop" data-testid="drop">
    <input type="file" data-testid="file" accept=".csv,.tsv,.txt,.xlsx,.npy,.npz,.parquet,.feather,.arrow,.arrows,.json,.gz,.zst" onChange=${heard} />
    <span class="drop-sign" aria-hidden="true">↥</span>
    <span><strong>Choose a file</strong> or drop it here</span>
    <span class="quiet">CSV, Excel, npy, Parquet · one row a point</span>
  </label>`;
}

/** Form of a synthetic data set. */
function Synthetic() {
  const { info, contract, forms, work } = useStore('info', 'contract', 'forms', 'work');
  const schema = contract?.components.schemas.SyntheticIn;
  if (!info || !schema) return null;
  const values = forms.synthetic ?? {};
  const name = values.name ?? 'swiss_roll';
  const change = (changed) => set({ forms: { ...state.forms, synthetic: changed } });
  const make = (event) => {
    event.preventDefault();
    synthesise({ ...values, name });
  };
  return html`<details class="more" data-testid="synthetic">
    <summary>An example, made for you</summary>
    <form onSubmit=${make}>
      <div class="chips" role="group" aria-label="Shape">
        ${info.manifolds.map((one) => html`<button type="button" class="chip" aria-pressed=${one === name}
          data-testid=${`synthetic-${one}`} onClick=${() => change({ ...values, name: one })}>${labelOf(one)}</button>`)}
      </div>
      <${SchemaForm} id="synthetic-form" schema=${schema} values=${values} without=${['name']} onChange=${change} />
      <button type="submit" data-testid="make-synthetic" disabled=${Boolean(work)}>Make it</button>
    </form>
  </details>`;
}

/** List of the existing data sets. */
function Recent({ items }) {
  return html`<details class="more" data-testid="recent" open=${items.length < 6}>
    <summary>Used before (${items.length})</summary>
    <ul class="list">
      ${items.map((one) => html`<li key=${one.id}>
        <button type="button" class="row" onClick=${() => openDataset(one)}>
          <span>${nameOf(one)}</span><span class="quiet">${number(one.n)} × ${number(one.n_features)}</span>
        </button></li>`)}
    </ul>
  </details>`;
}

/** Name of a data set. */
export function nameOf(dataset) {
  if (dataset.name) return dataset.name;
  if (dataset.source?.kind === 'synthetic') return labelOf(dataset.source.name);
  return `Data set ${dataset.id.slice(3, 9)}`;
}

const SEPARATORS = ['', 'comma', 'semicolon', 'tab', 'pipe']; // as the service calls them

/** A file before its upload: what the service would fit, and the roles of its columns. */
function Pending() {
  const { pending, work } = useStore('pending', 'work');
  const { file, head, shown, roles, only, delimiter } = pending;
  const columns = shown?.columns ?? [];
  const roleOf = ({ name, role }) => roles[name] ?? role;
  const give = (changed) => previewPending({ roles: { ...roles, ...changed } });
  const single = (role, name) => {
    const former = columns.filter((column) => roleOf(column) === role).map((column) => [column.name, undefined]);
    const changed = Object.fromEntries([...former, ...(name ? [[name, role]] : [])]);
    const kept = Object.entries({ ...roles, ...changed }).filter(([, one]) => one);
    return previewPending({ roles: Object.fromEntries(kept) });
  };
  const select = (role, id, title) => html`<div class="field">
    <label for=${id}>${title}</label>
    <select id=${id} data-testid=${id} disabled=${Boolean(work)}
      onChange=${(event) => single(role, event.target.value)}>
      <option value="">none</option>
      ${columns.map((column) => html`<option value=${column.name} selected=${roleOf(column) === role}>${column.name}</option>`)}
    </select></div>`;
  return html`<div data-testid="pending">
    <p class="file-name"><strong>${file.name}</strong>
      ${shown?.n ? html` <span class="quiet">${head ? 'the first ' : ''}${number(shown.n)} rows, ${number(shown.n_features)} fitted columns</span>` : ''}</p>
    ${shown?.rows.length > 0 && html`<${Table} names=${shown.names} rows=${shown.rows}
      more=${{ ids: shown.ids, labels: shown.labels, color: shown.color }} />`}
    <${Notices} notices=${shown?.notices} />
    ${/\.(csv|tsv|txt)(\.(gz|zst))?$/i.test(file.name) && html`<div class="form"><div class="field"><label for="delimiter">Separator</label>
      <select id="delimiter" data-testid="delimiter" disabled=${Boolean(work)}
        onChange=${(event) => previewPending({ shown: null, roles: {}, delimiter: event.target.value })}>
        ${SEPARATORS.map((name) => html`<option value=${name} selected=${name === delimiter}>${name || 'automatic'}</option>`)}</select></div></div>`}
    ${columns.length > 0 && html`<div class="form">${select('label', 'label-column', 'Labels')}${select('color', 'color-column', 'Color')}
        ${select(MAP[0], 'map-x', 'Map, across')}${select(MAP[1], 'map-y', 'Map, up')}</div>
      <details class="more" data-testid="column-roles" open=${columns.some(({ role }) => role === '')}>
        <summary>Columns (${columns.length})</summary>
        <div class="field"><label for="features-pattern">Fit only (names or patterns, such as x*)</label>
          <input id="features-pattern" type="text" data-testid="features-pattern" value=${only} disabled=${Boolean(work)}
            onChange=${(event) => previewPending({ only: event.target.value.trim() })} /></div>
        <div class="form">${columns.map((column) => html`<div class="field" key=${column.name}>
          <label for=${`role-${column.name}`}>${column.name}</label>
          <select id=${`role-${column.name}`} data-testid=${`role-${column.name}`} disabled=${Boolean(work)}
            onChange=${(event) => give({ [column.name]: event.target.value })}>
            ${roleOf(column) === '' && html`<option value="" selected>choose …</option>`}
            ${MAP.includes(roleOf(column)) && html`<option value=${roleOf(column)} selected>coordinate of the map</option>`}
            ${Object.entries(ROLES).map(([role, word]) => html`
              <option value=${role} selected=${roleOf(column) === role}>${word}</option>`)}
          </select></div>`)}</div>
      </details>`}
    <div class="buttons">
      <button type="button" class="primary" data-testid="use-file" disabled=${Boolean(work)} onClick=${uploadPending}>${mapOf(pending) ? 'Audit this map' : 'Use this table'}</button>
      <button type="button" data-testid="discard-file" disabled=${Boolean(work)}
        onClick=${() => set({ pending: null, problem: null })}>Discard</button>
    </div>
  </div>`;
}

/** What the service decided about the columns. */
function Notices({ notices }) {
  if (!notices?.length) return null;
  return html`<div data-testid="upload-notices">${notices.map((text) => html`<p class="hint">${inWords(text)}</p>`)}</div>`;
}

/** The chosen data set. */
function Chosen() {
  const { dataset, preview } = useStore('dataset', 'preview');
  const rows = preview?.data;
  return html`<div data-testid="chosen">
    <p class="file-name"><strong>${nameOf(dataset)}</strong>
      ${' '}<span class="quiet">${number(dataset.n)} rows, ${number(dataset.n_features)} columns</span></p>
    ${rows && html`<${Table} names=${preview.names} rows=${rows.map((row) => row.map((value) => number(value)))}
      more=${{ ids: preview.ids, labels: preview.labels, color: preview.color }} />`}
    <${Notices} notices=${dataset.notices} />
    <label class="add-columns below"><input type="file" class="unseen" data-testid="map-file" accept=".csv,.tsv,.txt,.npy,.parquet"
      onChange=${(event) => {
        const [file] = event.target.files;
        event.target.value = '';
        if (file) auditMap(file);
      }} /><span>Audit a map: its coordinates from a file</span></label>
  </div>`;
}

const BESIDE = { ids: 'id', labels: 'label', color: 'color' };

/** The first rows, with a limited number of columns. */
function Table({ names, rows, more = {} }) {
  const most = 30;
  const count = Math.min(most, rows[0].length);
  const beside = Object.entries(more).filter(([, values]) => values);
  const side = (i) => (Number.isNaN(Number(String(rows[0][i]).replaceAll(',', ''))) ? 'words' : '');
  return html`<div class="table" tabindex="0" role="region" aria-label="First rows" data-testid="preview">
    <table>
      <thead><tr>
        ${beside.map(([name]) => html`<th scope="col" class="words">${BESIDE[name]}</th>`)}
        ${Array.from({ length: count }, (_, i) => html`<th scope="col" class=${side(i)}>${names?.[i] ?? `x${i + 1}`}</th>`)}
        ${rows[0].length > most && html`<th scope="col">+${rows[0].length - most}</th>`}
      </tr></thead>
      <tbody>${rows.map((row, at) => html`<tr>
        ${beside.map(([, values]) => html`<td class="words">${String(values[at])}</td>`)}
        ${row.slice(0, count).map((cell, i) => html`<td class=${side(i)}>${String(cell)}</td>`)}
      </tr>`)}</tbody>
    </table>
  </div>`;
}
