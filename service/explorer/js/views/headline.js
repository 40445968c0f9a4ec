/** One sentence about the shown draws, and what they are draws of. */

import { auditShown } from '../actions/audit.js';
import { assessNow } from '../actions/fit.js';
import { measureMovement } from '../actions/movement.js';
import { nameOf } from '../panels/data_panel.js';
import { html, number, percent, useMemo } from '../lib/html.js';
import { useStore } from '../store.js';

const SURE = { high: 'High', moderate: 'Moderate', low: 'Low', unknown: 'Not known' };

/** The median of numbers: with an even count the mean of the two in the middle. */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** The headline; without a summary it names the data and the method alone. */
export function Headline() {
  const { dataset, posterior, single, summary, reliability, draws, methods, view, audit, work } = useStore(
    'dataset', 'posterior', 'single', 'summary', 'reliability', 'draws', 'methods', 'view', 'audit', 'work',
  );
  const kept = useMemo(() => (summary ? median(summary.stability) : null), [summary]);
  if (!dataset || view === 'compare' || (!posterior && !single)) return null;
  const title = single?.title ?? methods.find(({ name }) => name === posterior.spec.method)?.title ?? posterior.spec.method;
  const k = posterior?.spec.n_neighbors;
  const about = single ? title : `${title}, ${k} neighbors${draws ? `, scale ${number(draws.scale)}${draws.notes?.length ? ' (doubtful)' : ''}` : ''}`;
  const meaning = summary && !single &&
    `For each point: the share of its ${k} nearest points in the consensus of the draws that are among its ${k} nearest in a draw, ` +
    `averaged over the ${summary.count} draws. This is the median over all ${number(dataset.n)} points.`;
  return html`<div class="headline">
    ${audit && html`<p class=${`verdict ${audit.beyond_chance === false ? 'low' : ''}`} data-testid="verdict">${audit.verdict}</p>`}
    ${meaning && html`<p class="claim" data-testid="headline" tabindex="0" aria-describedby="headline-meaning">The median point keeps
      <strong> ${percent(kept)}</strong> of its neighbors <span class="ask" aria-hidden="true">?</span>
      <span class="help" role="tooltip" id="headline-meaning">${meaning}</span></p>`}
    <p class="quiet">${nameOf(dataset)} · ${about}${!audit && html` · <button type="button" class="link" data-testid="audit" disabled=${Boolean(work)}
      onClick=${auditShown}>Audit this map</button>`}</p>
    ${summary && !single && html`<p class=${`sure ${reliability?.level ?? ''}`} data-testid="reliability">How sure is the spread?
      <strong> ${reliability ? SURE[reliability.level] : 'Being measured'}.</strong> ${reliability?.reason}
      ${reliability?.offered && html` <button class="link" data-testid="assess" onClick=${assessNow}>Measure it</button>`}</p>`}
    ${single && !single.isGiven && html`<${Moved} />`}
  </div>`;
}

/** How far to rely on the movement of an embedding, or the button that measures it. */
function Moved() {
  const { movement, work, audit } = useStore('movement', 'work', 'audit');
  if (movement) {
    return html`<p class=${`sure ${movement.level}`} data-testid="movement">Can its points be ranked by how far they move on half of the data?
      <strong> ${SURE[movement.level]}.</strong> ${movement.reason}
      ${movement.notes.some(({ code }) => code === 'movement-unreliable') && ' Its size is doubtful for this method: see the note.'}</p>`;
  }
  if (audit) return null; // it says more
  return html`<p class="sure" data-testid="movement">How far does it move on half of the data? <strong>Not measured.</strong> It takes some 40 refits of half
    the data, which all workers share. <button type="button" class="link" data-testid="measure-movement" disabled=${Boolean(work)}
      onClick=${measureMovement}>Measure it</button></p>`;
}
