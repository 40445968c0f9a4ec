/** Export: pictures, arrays, the link, and equivalent commands. */

import { copy, saveCsv, saveHtml, saveNpy, savePng, saveSvg } from '../actions/export.js';
import { linkHere } from '../actions/link.js';
import { curlLines, pythonLines } from '../lib/snippets.js';
import { html, useState } from '../lib/html.js';
import { state, useStore } from '../store.js';

const BUTTONS = [
  ['png', 'PNG', savePng, 'The picture with title, verdict and legend, at 300 dots per inch'],
  ['svg', 'SVG', saveSvg, 'The same picture as paths and text, for journals'],
  ['html', 'HTML', saveHtml, 'A page with the picture, the verdict and the table, which opens without the service'],
  ['npy', 'npy', saveNpy, 'The coordinates as a numpy array'],
  ['csv', 'CSV', () => saveCsv(), 'All rows with all columns, the embedding and the spread, for a spreadsheet'],
];

/** The bar below the view. */
export function ExportBar() {
  const { posterior, single, view } = useStore('posterior', 'draws', 'single', 'view', 'frame');
  const [said, say] = useState('');
  const [lines, setLines] = useState(null);
  if ((!posterior && !single) || view === 'compare') return null;
  const done = async (name, act) => {
    say((await act()) ?? '');
    setTimeout(() => say(''), 2500);
  };
  const texts = { curl: curlLines, python: pythonLines };
  return html`<section class="export" aria-label="Take it with you" data-testid="export">
    <div class="export-row">
      <span class="quiet">Save</span>
      ${BUTTONS.map(([name, title, act, hint]) =>
        html`<button type="button" data-testid=${`export-${name}`} title=${hint}
        onClick=${() => done(name, act)}>${title}</button>`)}
      <span class="gap"></span>
      <button type="button" data-testid="copy-link" title="An address that shows this again"
        onClick=${() => done('link', () => copy(linkHere(), 'Link copied'))}>Copy link</button>
      ${Object.keys(texts).map((name) =>
        html`<button type="button" data-testid=${`show-${name}`} aria-expanded=${lines === name}
        aria-controls="lines" onClick=${() => setLines(lines === name ? null : name)}>
          ${name === 'curl' ? 'curl' : 'Python'}</button>`)}
      <span class="said" role="status">${said}</span>
    </div>
    ${lines && html`<div class="lines" id="lines">
      <pre tabindex="0" data-testid="lines"><code>${texts[lines](state)}</code></pre>
      <button type="button" data-testid="copy-lines"
        onClick=${() => done('lines', () => copy(texts[lines](state), 'Copied'))}>Copy</button></div>`}
  </section>`;
}
