/** Step one: the data. */

import { labelOf } from '../lib/titles.js';
import { auditMap, isTable, synthesise, takeFile } from '../actions/data.js';
import { openDataset } from '../actions/open.js';
import { hasDates } from '../lib/columns.js';
import { date, html, number, useEffect, useState } from '../lib/html.js';
import { set, state, useStore } from '../store.js';
import { Notices, plainColumns, Table } from '../views/columns.js';
import { SchemaForm } from './schema_form.js';

/** Preview a chosen or dropped file. */
export async function take(file) {
  if (!isTable(file.name)) {
    set({
      problem: {
        title: 'This file cannot be read',
        detail: `${file.name} is neither CSV, TSV, xlsx, npy, npz, Parquet, Feather, Arrow nor JSON, nor one of ` +
          `these as .gz.`,
        remedy: 'Save the table as CSV with one row per point, and drop it here.',
        details: {},
      },
    });
    return;
  }
  await takeFile(file);
  set({ announcement: `${file.name}: check its columns. Nothing is stored yet.` });
}

/** The panel. */
export function DataPanel() {
  const { dataset, recent } = useStore('dataset', 'recent', 'work');
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [dataset]); // also of a dropped file
  if (dataset && !isOpen) {
    return html`<section class="panel" data-testid="data-panel">
      <div class="panel-head"><h2>1 · Data</h2>
        <button type="button" class="link" data-testid="change-data" onClick=${() => setOpen(true)}>Change</button>
        </div>
      <${Chosen} />
    </section>`;
  }
  return html`<section class="panel" data-testid="data-panel">
    <div class="panel-head"><h2>1 · Data</h2>
      ${dataset && html`<button type="button" class="link"
        onClick=${() => setOpen(false)}>Keep these data</button>`}</div>
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
    <input type="file" data-testid="file"
      accept=".csv,.tsv,.txt,.xlsx,.npy,.npz,.parquet,.feather,.arrow,.arrows,.json,.gz" onChange=${heard} />
    <span class="drop-sign" aria-hidden="true">↥</span>
    <span><strong>Choose a file</strong> or drop it here</span>
    <span class="quiet">CSV, Excel, npy, Parquet · one row per point</span>
  </label>`;
}

/** Form of a synthetic data set. */
function Synthetic() {
  const { info, schemas, forms, work } = useStore('info', 'schemas', 'forms', 'work');
  const schema = schemas?.SyntheticIn;
  if (!info || !schema) return null;
  const values = forms.synthetic ?? {};
  const name = values.name ?? 'swiss_roll';
  const change = (changed) => set({ forms: { ...state.forms, synthetic: changed } });
  const make = (event) => {
    event.preventDefault();
    synthesise({ ...values, name });
  };
  return html`<details class="more" data-testid="synthetic">
    <summary>Generate an example</summary>
    <form onSubmit=${make}>
      <div class="chips" role="group" aria-label="Shape">
        ${info.manifolds.map((one) => html`<button type="button" class="chip" aria-pressed=${one === name}
          data-testid=${`synthetic-${one}`} onClick=${() => change({ ...values, name: one })}>${labelOf(one)}
          </button>`)}
      </div>
      <${SchemaForm} id="synthetic-form" schema=${schema} values=${values} without=${['name']} onChange=${change} />
      <button type="submit" data-testid="make-synthetic" disabled=${Boolean(work)}>Generate it</button>
    </form>
  </details>`;
}

/** List of the existing data sets. */
function Recent({ items }) {
  return html`<details class="more" data-testid="recent" open=${items.length < 6}>
    <summary>Earlier data sets (${items.length})</summary>
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

/** The chosen data set. */
function Chosen() {
  const { dataset, preview } = useStore('dataset', 'preview');
  const colors = hasDates(dataset) ? preview?.colors?.map(date) : preview?.colors;
  return html`<div data-testid="chosen">
    <p class="file-name"><strong>${nameOf(dataset)}</strong>
      ${' '}<span class="quiet">${number(dataset.n)} rows, ${number(dataset.n_features)} columns</span></p>
    ${preview &&
      html`<${Table} columns=${plainColumns({ ...preview, rows: preview.data, colors }, dataset.columns)} />`}
    <${Notices} notices=${dataset.notices} />
    <label class="add-columns below">
      <input type="file" class="unseen" data-testid="map-file" accept=".csv,.tsv,.txt,.npy,.parquet"
      onChange=${(event) => {
        const [file] = event.target.files;
        event.target.value = '';
        if (file) auditMap(file);
      }} /><span>Audit a map of these data from a file</span></label>
  </div>`;
}
