/** Methods side by side, with their scores. */

import { auditRowsNow, bestOf, compare, comparedMethods, openRow } from '../actions/compare.js';
import { embedders, hindrance } from '../methods.js';
import { boxOf, placeInBox } from '../lib/frames.js';
import { html, number, percent, seconds, useMemo } from '../lib/html.js';
import { colorsOf, LOOK } from '../lib/look.js';
import { titleOfMethod } from '../lib/titles.js';
import { plainProblem, stepsOf } from '../lib/remedies.js';
import { set, state, useStore } from '../store.js';
import { Empty } from './empty.js';
import { Thumb } from './thumb.js';

/** The view. */
export function Compare() {
  const { dataset, comparison, work, compared: _ } = useStore('dataset', 'comparison', 'work', 'compared', 'methods');
  if (!dataset) return html`<${Empty} />`;
  const names = comparedMethods();
  return html`<div class="compare" data-testid="compare">
    <${Choice} names=${names} isOpen=${!comparison} />
    <div class="buttons first"><button type="button" class="primary" data-testid="compare-go" disabled=${Boolean(work) || names.length < 2}
      onClick=${compare}>Compare ${names.length} methods</button>
      ${names.length < 2 && html`<span class="quiet">Choose at least two.</span>`}</div>
    ${comparison && html`<${Cards} /><${Scores} />`}
  </div>`;
}

/** The methods by their families. */
function Choice({ names, isOpen }) {
  const families = new Map();
  for (const method of embedders()) families.set(method.family, [...(families.get(method.family) ?? []), method]);
  const toggle = (name) => {
    const now = comparedMethods();
    set({ compared: now.includes(name) ? now.filter((other) => other !== name) : [...now, name] });
  };
  return html`<details class="more method-choice" open=${isOpen}><summary>Methods to compare</summary>
    ${[...families].map(([family, methods]) => html`<div class="family" role="group" aria-label=${family}>
      <span class="quiet">${family}</span><span class="chips">${methods.map((method) => {
        const why = hindrance(method);
        return html`<button type="button" class="chip" data-testid=${`compare-${method.name}`} disabled=${Boolean(why)}
          aria-pressed=${names.includes(method.name)} title=${why || `${method.title}. ${method.description}`}
          onClick=${() => toggle(method.name)}>${titleOfMethod(method.name)}</button>`;
      })}</span></div>`)}
    <p class="help">Each method has the settings of its form in the set-up.</p>
  </details>`;
}

/** One picture for each method. */
function Cards() {
  const state = useStore('comparison', 'selection', 'dataset', 'hidden', ...LOOK);
  const { comparison, selection, dataset } = state;
  const n = dataset.n;
  const best = bestOf(comparison);
  const look = useMemo(() => colorsOf(state, n), [comparison, ...LOOK.map((name) => state[name])]);
  const places = useMemo(() => Object.fromEntries(Object.entries(comparison.places).map(([label, { data, p }]) => {
    const axes = [0, Math.min(1, p - 1)];
    return [label, placeInBox(data, n, p, axes, boxOf([data], n, p, p === 1 ? [0, 1] : axes))];
  })), [comparison, state.hidden]);
  return html`<div class="grid" data-testid="comparison">
    ${comparison.rows.map((row) => (row.problem ? html`<${Failed} key=${row.label} row=${row} />` : html`
      <${Thumb} key=${row.label} xy=${places[row.label]} look=${look} selection=${selection} title=${titleOf(row)} audit=${comparison.audits[row.label]}
        isBest=${row.label === best} note=${seconds(total(row.seconds))} onOpen=${() => openRow(row)} />`))}
    ${comparison.request.methods.slice(comparison.rows.length).map(({ label, method }) => html`<div key=${label} class="thumb failed" data-testid="comparison-waiting"><strong>${titleOfMethod(method)}</strong><p class="quiet">In progress</p></div>`)}
  </div>`;
}

const total = (stages) => Object.values(stages ?? {}).reduce((sum, one) => sum + one, 0);
const titleOf = (row) => titleOfMethod(row.method);

/** Reason why a method has no picture. */
function Failed({ row }) {
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

/** What the audits say, in the first row. */
const REMAINS = { name: 'remains', title: 'Remains in another sample', better: 'higher', about: 'The share of the map (R²) that we expect a new sample of half as many points to reproduce.' };

/** One row for what remains, and one for each score, with the best value marked. */
function Scores() {
  const { comparison, scoreList, work } = useStore('comparison', 'scoreList', 'work');
  const rows = comparison.rows.filter((row) => row.scores);
  const valueOf = ({ label, scores }, name) => (name === REMAINS.name ? comparison.audits[label]?.remains : scores[name]) ?? null;
  const isMeasured = Object.keys(comparison.audits).length > 0;
  const shown = [...(isMeasured ? [REMAINS] : []), ...(scoreList ?? [])].filter(({ name }) => rows.some((row) => valueOf(row, name) !== null));
  if (!shown.length) return null;
  return html`<div class="table scores" tabindex="0" role="region" aria-label="Scores" data-testid="scores"><table>
    <thead><tr><th scope="col">Score</th>${rows.map((row) => html`<th scope="col">${titleOf(row)}</th>`)}</tr></thead>
    <tbody>${!isMeasured && html`<tr data-testid="remains-unknown"><th scope="row" title=${REMAINS.about}>${REMAINS.title}</th>
      <td colspan=${rows.length}>${work ? html`<span class="quiet">being measured</span>`
        : html`<button type="button" class="link" data-testid="audit-rows" onClick=${auditRowsNow}>Audit these maps</button>`}</td></tr>`}
      ${shown.map(({ name, title, about, better }) => {
      const values = rows.map((row) => valueOf(row, name));
      const known = values.filter((value) => value !== null);
      const best = known.length < 2 ? null : better === 'higher' ? Math.max(...known) : Math.min(...known);
      return html`<tr><th scope="row" title=${about}>${title} <span class="quiet">${better === 'higher' ? '↑' : '↓'}</span></th>
        ${values.map((value) => html`<td class=${value !== null && value === best ? 'best' : ''}>${name === REMAINS.name ? percent(value ?? NaN) : number(value)}
          ${value !== null && value === best && html`<span class="unseen"> (best)</span>`}</td>`)}</tr>`;
    })}</tbody></table></div>`;
}
