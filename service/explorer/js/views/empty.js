/** The empty stage, with the next steps. */

import { EXAMPLES, openExample, openExampleMap } from '../actions/examples.js';
import { fit } from '../actions/fit.js';
import { chosenMethod, hindrance } from '../methods.js';
import { html } from '../lib/html.js';
import { titleOfMethod } from '../lib/titles.js';
import { set, state, useStore } from '../store.js';

const MAKERS = ['umap', 't-sne', 'em']; // methods at first sight

/** Choose a file, or a map of the chosen data, by the field of the set-up. */
export const chooseFile = (field = 'file') =>
  /** @type {HTMLElement} */ (document.querySelector(`[data-testid=${field}]`)).click();

/** The empty stage. */
export function Empty() {
  const { dataset, info, work } = useStore('dataset', 'info', 'work', 'method', 'methods');
  if (work) return html`<div class="empty" data-testid="empty"><p class="quiet">One moment…</p></div>`;
  if (dataset) {
    const method = chosenMethod();
    return html`<div class="empty" data-testid="empty">
      <h2>May I believe a map of these data?</h2>
      <p>Audit a map that you have: choose a file with its coordinates, in the order of the rows. Or make a map
        here.</p>
      <div class="buttons"><button type="button" class="primary" data-testid="choose-map"
        onClick=${() => chooseFile('map-file')}>Choose the file of a map</button></div>
      <${Makers} />
      ${!MAKERS.includes(method.name) &&
        html`<div class="buttons"><button type="button" data-testid="make-map"
          onClick=${() => fit()}>Make a map by ${titleOfMethod(method.name)}</button></div>`}
    </div>`;
  }
  return html`<div class="empty" data-testid="empty">
    <h2>May I believe this map?</h2>
    <p>Drop a table anywhere on this page, with or without the two coordinates of a map. You learn which parts of
      the map
      another sample of the data would show, too, and which to distrust.</p>
    ${info && html`<div class="buttons">
      <button type="button" class="primary" data-testid="choose-file"
        onClick=${() => chooseFile()}>Choose a table</button>
        <button type="button" data-testid="example-umap"
          onClick=${openExampleMap}>See an example: digits by UMAP</button></div>
      <p class="quiet">CSV, Excel, npy, npz, Parquet, Arrow or JSON, with one row per point</p>
      <${Makers} />
      <p class="quiet">Or watch GLLE draw many plausible maps of an example:</p>
      <div class="examples">${EXAMPLES.map((example) => html`<button type="button" key=${example.name} class="example"
        data-testid=${`example-${example.name}`} onClick=${() => openExample(example)}>
          <strong>${example.title}</strong><span>${example.text}</span></button>`)}</div>`}
  </div>`;
}

/** Choose a method; with data its map is made at once. */
function make(method) {
  set({ method });
  if (state.dataset && !state.work) fit();
}

/** The usual methods; the set-up has all. */
function Makers() {
  const { methods, method } = useStore('methods', 'method', 'dataset');
  return html`<div class="makers"><span class="quiet" id="makers">If the table has no map, make one by</span>
    <div class="segmented" role="group" aria-labelledby="makers">
    ${MAKERS.flatMap((name) => methods.filter((one) => one.name === name))
      .map((one) => html`<button type="button" key=${one.name} data-testid=${`maker-${one.name}`}
      aria-pressed=${one.name === method} disabled=${Boolean(hindrance(one))} title=${hindrance(one) || one.title}
        onClick=${() => make(one.name)}>${titleOfMethod(one.name)}</button>`)}</div></div>`;
}
