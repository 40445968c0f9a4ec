/** Steps two and three: the method with its settings, and the draws. */

import { defaultCount, drawAgain, drawSettings, fit } from '../actions/fit.js';
import { chosenMethod, hindrance } from '../methods.js';
import { bytes, html, number } from '../lib/html.js';
import { set, state, useStore } from '../store.js';
import { titleOfMethod } from '../lib/titles.js';
import { SchemaForm } from './schema_form.js';

/** The methods with draws, in plain words. */
const WORDS = {
  em: 'Draws many maps that are plausible for the data. Rely on what they have in common.',
  direct: 'Like GLLE, but the maps vary around the one of locally linear embedding (LLE).',
};

/** The method and its settings. */
export function MethodPanel() {
  const { methods, method, forms } = useStore('methods', 'method', 'forms', 'dataset');
  const chosen = chosenMethod();
  if (!chosen) return html`<section class="panel"><h2>2 · Method</h2><p class="quiet">Waiting for the service.</p>
  </section>`;
  const values = forms[method] ?? {};
  const isEmbedding = chosen.makes === 'embedding';
  const schema = isEmbedding ? chosen.parameters.properties.parameters : chosen.parameters;
  const change = (changed) => set({ forms: { ...state.forms, [method]: changed } });
  const pick = (event) => set({ method: event.target.value });
  const variant = chosen.variants.find(({ name }) => name === (values.variant ?? schema.properties.variant?.default));
  return html`<section class="panel" data-testid="method-panel">
    <h2>2 · Method</h2>
    <div class="field wide">
      <select id="method" aria-label="Method" data-testid="method" value=${method} onChange=${pick}>
        ${families(methods).map(([family, members]) =>
          html`<optgroup label=${family}>${members.map((one) => html`<option
          value=${one.name} selected=${one.name === method} disabled=${Boolean(hindrance(one))}>
            ${one.makes === 'posterior' ? titleOfMethod(one.name) : one.title}${hindrance(one) &&
              ` (${hindrance(one)})`}</option>`)}</optgroup>`)}
      </select>
      <p class="help">${WORDS[method] ?? chosen.description}</p>
    </div>
    <${SchemaForm} id=${`form-${method}`} schema=${schema} values=${values} without=${['dataset', 'method']}
      notes=${{ variant: variant?.description }} onChange=${change} />
  </section>`;
}

/** The methods by family; those with draws first. */
function families(methods) {
  const found = new Map();
  for (const method of methods) {
    const family = method.makes === 'posterior' ? 'with uncertainty' : `${method.family}, one embedding`;
    found.set(family, [...(found.get(family) ?? []), method]);
  }
  return [...found];
}

/** Settings of the draws, their size, and the button. */
export function FitPanel() {
  const state = useStore('dataset', 'forms', 'work', 'posterior', 'schemas', 'draws', 'service', 'method', 'methods');
  const { dataset, work, posterior, schemas } = state;
  const isEmbedding = chosenMethod()?.makes === 'embedding';
  const schema = isEmbedding ? null : schemas?.DrawsIn;
  const values = state.forms.draws ?? {};
  const change = (changed) => set({ forms: { ...state.forms, draws: changed } });
  const ready = Boolean(dataset) && !work && state.service !== 'connecting';
  const go = (event) => {
    event.preventDefault();
    if (ready) fit();
  };
  return html`<section class="panel" data-testid="fit-panel">
    <h2>3 · ${isEmbedding ? 'Map' : 'Draws'}</h2>
    <form onSubmit=${go}>
      ${schema && html`<${SchemaForm} id="draws" schema=${schema} values=${values} more=${false}
        without=${['scales', 'first', 'source', 'align']} defaults=${{ n_draws: defaultCount(), scale: 1 }}
        onChange=${change} />`}
      ${isEmbedding ? !dataset && html`<p class="hint">Choose data first.</p>` : html`<${Size} />`}
      <div class="buttons">
        <button type="submit" class="primary wide" id="fit" data-testid="fit" disabled=${!ready}>
          ${isEmbedding ? 'Make the map' : `Make ${number(drawSettings().n_draws)} plausible maps`}</button>
        ${posterior && !isEmbedding &&
          html`<button type="button" data-testid="draw-again" disabled=${!ready} onClick=${drawAgain}
          title="From the current fit">Draw again</button>`}
      </div>
    </form>
  </section>`;
}

/** Size of the draws. */
function Size() {
  const { dataset, forms, method } = useStore('dataset', 'forms', 'method');
  if (!dataset) return null;
  const { n_draws: count } = drawSettings();
  const size = count * dataset.n * (forms[method]?.n_components ?? 2) * 8;
  return html`<p class="hint" data-testid="size">
    ${number(count)} draws of ${number(dataset.n)} points: ${bytes(size)}.</p>`;
}
