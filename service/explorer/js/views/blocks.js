/** The choice of what says which rows belong together: a column, or stretches of one series. */

import { blockColumns, chooseBlocks, chooseStretches, STRETCHES } from '../actions/audit.js';
import { runWork } from '../actions/state.js';
import { html } from '../lib/html.js';
import { useStore } from '../store.js';

/**
 * The control; `repeat` makes again what was made without the choice, within other work.
 * @param {{repeat: () => Promise<void>}} props
 */
export function Blocks({ repeat }) {
  const { blocks, dataset } = useStore('blocks', 'dataset', 'metadata', 'columns');
  const names = blockColumns();
  const choose = (choice) => runWork(() => choice().then(repeat));
  return html`<div class="buttons">
    ${names.length > 0 && html`<label class="sure needs-method">Which column names the subject, the series or the
      replicate of each row?
      <select data-testid="blocks" onChange=${({ target }) => target.value && choose(() => chooseBlocks(target.value))}>
        <option value="">Choose the column</option>
        ${names.map((name) => html`<option value=${name} selected=${name === blocks}>${name}</option>`)}</select>
      </label>`}
    ${dataset.n >= 2 * STRETCHES &&
      html`<button type="button" data-testid="stretches" onClick=${() => choose(chooseStretches)}>The rows are one
        series: keep ${STRETCHES} stretches of it together</button>`}
    ${names.length === 0 &&
      html`<span class="quiet">If a column names the subject of each row, choose the file again, and make that column
        the id in its head.</span>`}</div>`;
}
