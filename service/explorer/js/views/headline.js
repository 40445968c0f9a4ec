/** One sentence about the shown draws, and what they are draws of. */

import { auditAgain, auditAsMapOf, auditShown, auditStandardized } from '../actions/audit.js';
import { findTrusted } from '../actions/compare.js';
import { embedders, hindrance, settingsHere, settingsOf } from '../methods.js';
import { titleOfMethod } from '../lib/titles.js';
import { nameOf } from '../panels/data_panel.js';
import { html, number, percent, useMemo } from '../lib/html.js';
import { linesOf, methodOf } from '../lib/verdict.js';
import { useStore } from '../store.js';
import { fittedHere } from '../panels/notes.js';
import { tryWith } from '../panels/problem.js';
import { Blocks } from './blocks.js';

/** The median of numbers: with an even count the mean of the two in the middle. */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/**
 * The verdict, what it rests on, and what it is of. Its height is that of its longest texts, so that the picture does
 * not move.
 */
export function Headline() {
  const { dataset, posterior, single, summary, draws, view, audit, work } = useStore(
    'dataset', 'posterior', 'single', 'summary', 'draws', 'methods', 'view', 'audit', 'work', 'blocks',
  );
  const kept = useMemo(() => (summary ? median(summary.stability) : null), [summary]);
  if (!dataset || view === 'compare') return null;
  if (!posterior && !single) return work && html`<div class="headline"></div>`; // keeps its place
  const k = posterior?.spec.n_neighbors;
  const scale = settingsHere().standardize ?? audit?.standardize ?? 'none';
  const about = single ? single.title
    : `${titleOfMethod(posterior.spec.method)}, ${k} neighbors${draws
      ? `, scale ${number(draws.scale)}${draws.notes?.length ? ' (doubtful)' : ''}` : ''}`;
  const meaning = summary && !single &&
    `For each point: the share of its ${k} nearest points in the consensus of the draws that are among its ${k} ` +
      `nearest in a draw, ` +
    `averaged over the ${summary.count} draws. This is the median over all ${number(dataset.n)} points.`;
  const level = audit?.level ?? '';
  return html`<div class=${`headline ${level}`} data-testid="headline-box">
    ${audit && html`<${Verdict} audit=${audit} />`}
    ${audit && work && (audit.is_preliminary || (single?.isGiven && single.body.method && !audit.method)) &&
      html`<p class="quiet" data-testid="preliminary">Preliminary: more samples are being embedded.</p>`}
    ${audit && !work && html`<${NextStep} audit=${audit} />`}
    <div class="claims">
      ${meaning && html`<p class=${audit ? 'claim' : 'claim verdict'} data-testid="headline" tabindex="0"
        aria-describedby="headline-meaning">The median point keeps
      <strong> ${percent(kept)}</strong> of its neighbors <span class="ask" aria-hidden="true">?</span>
      <span class="help" role="tooltip" id="headline-meaning">${meaning}</span></p>`}
    ${!meaning && !audit &&
      html`<p class="verdict">${single ? 'May I believe this map?'
        : 'This is one plausible map. Others are being drawn.'}</p>`}</div>
    <p class="quiet about"><span>${nameOf(dataset)} · ${about}${scale === 'none' ? '' : ', columns standardized'}</span>
      ${!audit && html`<button type="button" class=${single ? 'primary' : ''}
      data-testid="audit" disabled=${Boolean(work)} onClick=${auditShown}
        title="Compare it with chance and with other samples of the data">Audit this map</button>`}</p>
  </div>`;
}

/** What to read from the map and what not, a line each, then the reasons and how all this was found. */
function Verdict({ audit }) {
  return html`<div class="verdict" data-testid="verdict">${linesOf(audit.lines).map(({ mark, text }) => (mark
    ? html`<p class=${{ '✓': 'do', '✗': 'do-not' }[mark] ?? 'open'}>
      <span class="mark" aria-hidden="true">${mark}</span> ${text}</p>`
    : html`<p class="why">${text}</p>`))}</div>
  <details class="found quiet" data-testid="found">
    <summary>${methodOf(audit)} <span class="link">Read more</span></summary>
    <p>A part of the map is trusted if maps of other halves of the rows have it, and the data have it, too. On data
      of which the truth is known (184 maps by six methods),
      no verdict trusted anything that fresh samples did not show, and no map of noise was taken for
        structure${audit.method ? '' : '; coordinates alone tell less'}. The shares below say how much is the same;
      from 60% on a share is trusted, from 30% on for neighbors and for the rough layout. An island is trusted if it
      is apart in four of five halves, and in the data.</p></details>`;
}

/** The control for what the verdict asks for, and the way to a better map. */
function NextStep({ audit }) {
  const { single, methods } = useStore('single', 'methods', 'dataset', 'metadata', 'columns');
  const { asks } = audit;
  const fitted = fittedHere();
  const canStandardize =
    asks === 'standardize' &&
    (single?.isGiven
      ? !single.isExample
      : fitted && methods.some(({ name }) => name === fitted.method) && 'standardize' in settingsOf(fitted.method));
  const isGiven = single?.isGiven && !single.isExample;
  return html`<div class="buttons next" data-testid="next-step">
    ${isGiven && (!single.body.method || asks === 'method') && html`<${NeedsMethod} />`}
    ${canStandardize &&
      html`<button type="button" data-testid="standardize"
        onClick=${() => (fitted ? tryWith({ standardize: 'zscore' }, fitted) : auditStandardized())}>Standardize the
        columns, and ${fitted ? 'make the map' : 'audit'} again</button>`}
    ${asks === 'blocks' && html`<${Blocks} repeat=${auditAgain} />`}
    ${audit.level !== 'trust' && !canStandardize && asks !== 'blocks' && !single?.isExample &&
      html`<button type="button" class=${isGiven ? '' : 'primary'} data-testid="find-trusted"
        onClick=${findTrusted}>Find a map that I can trust</button>`}
  </div>`;
}

/** The field of the method that made a map of one's own. */
function NeedsMethod() {
  const { work } = useStore('work', 'methods');
  const methods = embedders().filter((method) => !hindrance(method) && !method.needs_labels);
  return html`<label class="sure needs-method">To learn how stable it is, choose the method that made it:
    <select data-testid="map-method" disabled=${Boolean(work)}
      onChange=${({ target }) => target.value && auditAsMapOf(target.value)}><option value="">Choose the method</option>
      ${methods.map(({ name }) => html`<option value=${name}>${titleOfMethod(name)}</option>`)}</select></label>`;
}
