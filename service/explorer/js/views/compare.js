/** Maps side by side: which to show for which question, and why. */

import { compare, compareNow, openRow } from '../actions/compare.js';
import { brightRows } from '../actions/selection.js';
import { embedders, hindrance } from '../methods.js';
import { compute, useComputed } from '../lib/background.js';
import { boxOf, directionsOf, placeInBox } from '../lib/frames.js';
import { html, number, percent, seconds, useMemo } from '../lib/html.js';
import { titleOfMethod } from '../lib/titles.js';
import { plainProblem, stepsOf } from '../lib/remedies.js';
import { islandsOf } from '../plot/islands.js';
import { set, state, useStore } from '../store.js';
import { Blocks } from './blocks.js';
import { Empty } from './empty.js';
import { Thumb } from './thumb.js';

const QUESTIONS = { neighbors: 'who is near whom', layout: 'distances across the map', groups: 'groups' };

/** The view. */
export function Compare() {
  const { dataset, comparison, work, compared: names } = useStore('dataset', 'comparison', 'work', 'compared',
    'methods');
  if (!dataset) return html`<${Empty} />`;
  return html`<div class="compare" data-testid="compare">
    ${comparison ? html`<${Answers} />`
      : html`<p>Several maps of these data are made, each is audited on the same halves of the rows, and you read
        which to show for which question.</p>`}
    <${Choice} names=${names} isMade=${Boolean(comparison)} />
    <div class="buttons first"><button type="button" class=${comparison ? '' : 'primary'} data-testid="compare-go"
      disabled=${Boolean(work) || names?.length === 0}
      onClick=${() => compare()}>${names ? `Compare ${names.length} ${names.length === 1 ? 'map' : 'maps'}`
        : 'Compare the usual maps'}</button></div>
    ${comparison && html`<${Cards} /><${Scores} />`}
  </div>`;
}

/** What to do first, if anything, and the answers, at most three sentences; they change while maps are being made. */
function Answers() {
  const { comparison: { sentences, asks, isDone, rows, request }, work } = useStore('comparison', 'work');
  const scale = request.standardize ? { standardize: request.standardize } : {};
  return html`<div class="headline answers" data-testid="answers">
    <div aria-live="polite">
      ${sentences.map((sentence) => html`<p class="sentence" key=${sentence}>${sentence}</p>`)}
      ${!isDone && work &&
        html`<p class="quiet" data-testid="answers-so-far">So far,
          of ${number(rows.length)} of ${number(request.methods.length)} maps.</p>`}</div>
    ${isDone && !work && asks === 'blocks' && html`<${Blocks} repeat=${() => compareNow(scale)} />`}
    ${isDone && !work && asks === 'standardize' &&
      html`<div class="buttons"><button type="button" data-testid="compare-standardized"
        onClick=${() => compare({ standardize: 'zscore' })}>Standardize the columns, and compare again</button></div>`}
  </div>`;
}

/** The methods by their families; folded once maps are made of them. */
function Choice({ names, isMade }) {
  const families = new Map();
  for (const method of embedders()) families.set(method.family, [...(families.get(method.family) ?? []), method]);
  const toggle = (name) => {
    const now = state.compared ?? [];
    set({ compared: now.includes(name) ? now.filter((other) => other !== name) : [...now, name] });
  };
  return html`<details class="more method-choice" open=${Boolean(names) && !isMade}>
    <summary>Choose the methods</summary>
    ${[...families].map(([family, methods]) => html`<div class="family" role="group" aria-label=${family}>
      <span class="quiet">${family}</span><span class="chips">${methods.map((method) => {
        const why = hindrance(method);
        return html`<button type="button" class="chip" data-testid=${`compare-${method.name}`} disabled=${Boolean(why)}
          aria-pressed=${Boolean(names?.includes(method.name))} title=${why || `${method.title}. ${method.description}`}
          onClick=${() => toggle(method.name)}>${titleOfMethod(method.name)}</button>`;
      })}</span></div>`)}
    <p class="help">Without a choice these are PCA, Isomap, GLLE, and t-SNE, UMAP and PaCMAP with several numbers of
      neighbors. A chosen method has the settings of its form in the set-up.
      ${names && html` <button type="button" class="link" data-testid="compare-usual"
        onClick=${() => set({ compared: null })}>The usual maps again</button>`}</p>
  </details>`;
}

/** One picture for each map. */
function Cards() {
  const state = useStore('comparison', 'selection', 'passing', 'dataset', 'hidden', 'look');
  const { comparison, dataset } = state;
  const n = dataset.n;
  const { rows, best, request, places: found, audits } = comparison;
  const look = useMemo(() => ({ ...state.look, level: undefined }), [state.look]); // other maps have other sizes
  const boxes = useMemo(() => Object.fromEntries(Object.entries(found).map(([label, { data, p }]) => {
    const axes = [0, Math.min(1, p - 1)];
    return [label, { data, p, axes, box: boxOf([data], n, p, p === 1 ? [0, 1] : axes) }];
  })), [found]);
  const places = useMemo(() => Object.fromEntries(Object.entries(boxes).map(([label, { data, p, axes, box }]) =>
    [label, placeInBox(data, n, p, axes, box)])), [boxes, state.hidden]);
  const outlines = useComputed(() => outlinesOfMaps(audits, boxes), [boxes, audits, state.hidden]) ?? {};
  const answersOf = ({ label }) => Object.keys(QUESTIONS).filter((question) => best?.[question] === label)
    .map((question) => QUESTIONS[question]);
  const labels = new Set(rows.map(({ label }) => label));
  if (!state.look) return html`<div class="grid" data-testid="comparison"></div>`;
  return html`<div class="grid" data-testid="comparison">
    ${rows.map((row) => (row.problem || !places[row.label] ? html`<${Failed} key=${row.label} row=${row} />` : html`
      <${Thumb} key=${row.label} xy=${places[row.label]} look=${look} mask=${brightRows()} title=${titleOf(row)}
        said=${row} answers=${answersOf(row)}
        outlines=${outlines[row.label]}
          note=${row.is_preliminary && comparison.isDone ? 'clearly behind' : seconds(row.seconds?.audit ?? null)}
          onOpen=${() => openRow(row)} />`))}
    ${request.methods.filter(({ label }) => !labels.has(label))
      .map((row) =>
        html`<div key=${row.label} class="thumb failed" data-testid="comparison-waiting">
          <strong>${titleOf(row)}</strong><p class="quiet">In progress</p></div>`)}
  </div>`;
}

const traced = new WeakMap(); // the outlines of each audit, with the place and the hidden rows of which they are

/** The outlines of the maps that have an audit, by their labels. */
async function outlinesOfMaps(audits, boxes) {
  const known = Object.keys(audits).filter((label) => boxes[label]);
  const outlines = await Promise.all(known.map((label) => {
    const [audit, place, { hidden }] = [audits[label], boxes[label], state];
    const last = traced.get(audit);
    if (last?.place === place && last.hidden === hidden) return last.outlines;
    const { data, p, axes, box } = place;
    const inputs = { data, p, box, directions: directionsOf(p, axes, null), hidden: hidden?.mask };
    const made = compute('outlinesOf', { islands: islandsOf(audit), ...inputs });
    traced.set(audit, { place, hidden, outlines: made });
    made.catch(() => traced.delete(audit)); // it is asked again
    return made;
  }));
  return Object.fromEntries(known.map((label, i) => [label, outlines[i]]));
}

const titleOf = ({ title, method }) => title ?? titleOfMethod(method);

/** Reason why a method has no picture. */
function Failed({ row }) {
  if (!row.problem) return null;
  const steps = stepsOf(row.problem, row.parameters);
  const { text, remedy, own } = plainProblem(row.problem);
  const again = (values) => {
    set({ forms: { ...state.forms, [row.method]: { ...state.forms[row.method], ...values } } });
    compare();
  };
  return html`<div class="thumb failed" data-testid="comparison-failed"><strong>${titleOf(row)}</strong>
    <p title=${own}>${text}</p><p class="quiet">${remedy}</p>
    ${steps.filter(({ values }) => 'n_neighbors' in values).map(({ label, values }) => html`
      <button type="button" onClick=${() => again(values)}>${label}</button>`)}</div>`;
}

/** What the audits say, in the first row; it is no reason to choose a map, since a folded map is the stablest. */
const REMAINS = { name: 'remains', title: 'Remains in another sample',
  about: 'The share of the map (R²) that we expect a new sample of half as many points to reproduce. A map that is ' +
  'folded in every sample alike has a high share, too.' };

/** One row for what remains, and one for each score, with the best value marked. */
function Scores() {
  const { comparison, scoreList } = useStore('comparison', 'scoreList');
  const rows = comparison.rows.filter((row) => row.scores);
  const valueOf = (row, name) => (name === REMAINS.name ? row.remains : row.scores[name]) ?? null;
  const shown = [REMAINS, ...(scoreList ?? [])].filter(({ name }) => rows.some((row) => valueOf(row, name) !== null));
  if (!shown.length) return null;
  return html`<details class="more"><summary>Scores</summary>
    <div class="table scores" tabindex="0" role="region" aria-label="Scores" data-testid="scores"><table>
    <thead><tr><th scope="col">Score</th>${rows.map((row) => html`<th scope="col">${titleOf(row)}</th>`)}</tr></thead>
    <tbody>${shown.map(({ name, title, about, better }) => {
      const values = rows.map((row) => valueOf(row, name));
      const known = values.filter((value) => value !== null);
      const best = known.length < 2 || !better ? null : better === 'higher' ? Math.max(...known) : Math.min(...known);
      return html`<tr><th scope="row" title=${about}>
        ${title} <span class="quiet">${better ? (better === 'higher' ? '↑' : '↓') : ''}</span></th>
        ${values.map((value) =>
          html`<td class=${value !== null && value === best ? 'best' : ''}>
            ${name === REMAINS.name ? percent(value ?? NaN) : number(value)}
          ${value !== null && value === best && html`<span class="unseen"> (best)</span>`}</td>`)}</tr>`;
    })}</tbody></table></div></details>`;
}
