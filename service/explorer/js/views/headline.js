/** One sentence about the shown draws, and what they are draws of. */

import { auditAsMapOf, auditShown } from '../actions/audit.js';
import { embedders, hindrance } from '../methods.js';
import { titleOfMethod } from '../lib/titles.js';
import { nameOf } from '../panels/data_panel.js';
import { html, number, percent, useMemo } from '../lib/html.js';
import { useStore } from '../store.js';

/** The median of numbers: with an even count the mean of the two in the middle. */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** The verdict, what it rests on, and what it is of. Its height is that of its longest texts, so that the picture does not move. */
export function Headline() {
  const { dataset, posterior, single, summary, draws, view, audit, work } = useStore(
    'dataset', 'posterior', 'single', 'summary', 'draws', 'methods', 'view', 'audit', 'work',
  );
  const kept = useMemo(() => (summary ? median(summary.stability) : null), [summary]);
  if (!dataset || view === 'compare') return null;
  if (!posterior && !single) return work && html`<div class="headline"></div>`; // keeps its place
  const k = posterior?.spec.n_neighbors;
  const about = single ? single.title
    : `${titleOfMethod(posterior.spec.method)}, ${k} neighbors${draws ? `, scale ${number(draws.scale)}${draws.notes?.length ? ' (doubtful)' : ''}` : ''}`;
  const meaning = summary && !single &&
    `For each point: the share of its ${k} nearest points in the consensus of the draws that are among its ${k} nearest in a draw, ` +
    `averaged over the ${summary.count} draws. This is the median over all ${number(dataset.n)} points.`;
  const [first] = audit?.verdict.match(/^.*?\.(?= |$)/) ?? [''];
  const level = audit?.level ?? '';
  return html`<div class=${`headline ${level}`} data-testid="headline-box">
    ${audit && html`<p class="verdict" data-testid="verdict">${first}<span>${audit.verdict.slice(first.length)}</span></p>`}
    ${audit && work && (audit.is_preliminary || (single?.isGiven && single.body.method && !audit.method)) && html`<p class="quiet" data-testid="preliminary">Preliminary: more samples are being embedded.</p>`}
    ${audit && single?.isGiven && !single.body.method && html`<${NeedsMethod} />`}
    <div class="claims">${meaning && html`<p class=${audit ? 'claim' : 'claim verdict'} data-testid="headline" tabindex="0" aria-describedby="headline-meaning">The median point keeps
      <strong> ${percent(kept)}</strong> of its neighbors <span class="ask" aria-hidden="true">?</span>
      <span class="help" role="tooltip" id="headline-meaning">${meaning}</span></p>`}
    ${!meaning && !audit && html`<p class="verdict">${single ? 'May I believe this map?' : 'This is one plausible map. Others are being drawn.'}</p>`}</div>
    <p class="quiet about"><span>${nameOf(dataset)} · ${about}</span>${!audit && html`<button type="button" class=${single ? 'primary' : ''}
      data-testid="audit" disabled=${Boolean(work)} onClick=${auditShown} title="Compare it with chance and with other samples of the data">Audit this map</button>`}</p>
  </div>`;
}

/** The field of the method that made a map of one's own. */
function NeedsMethod() {
  const { work } = useStore('work', 'methods');
  const methods = embedders().filter((method) => !hindrance(method) && !method.needs_labels);
  return html`<label class="sure needs-method">To learn how stable it is, choose the method that made it:
    <select data-testid="map-method" disabled=${Boolean(work)} onChange=${({ target }) => target.value && auditAsMapOf(target.value)}><option value="">Choose the method</option>
      ${methods.map(({ name }) => html`<option value=${name}>${titleOfMethod(name)}</option>`)}</select></label>`;
}
