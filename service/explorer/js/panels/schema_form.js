/** Form generated from the JSON Schema that the service publishes. */

import { html } from '../lib/html.js';
import { labelOf } from '../lib/titles.js';

const FIRST = ['variant', 'n_neighbors', 'n_components', 'perplexity'];
const FEW = 4; // fields shown without “More”

/** Plain words for the settings that everyone sees; the others have the service's descriptions. */
const HELP = {
  n_neighbors:
    'How many nearest rows are the neighborhood of a row. Few show detail, many are steadier; auto goes by the ' +
      'number of rows.',
  n_components: 'Of the picture: 2 for a flat map, 3 for one that you can turn.',
  variant: 'Constrained is the dependable one; published has the equations as they were printed.',
  standardize:
    'Bring columns in different units to one scale: zscore by mean and deviation, robust by median and quartiles.',
  disconnected: 'Join separate pieces of the data, by bridges or by more neighbors, or stop with an error.',
  n_draws: 'How many maps. More show the uncertainty better and take longer.',
  landmarks:
    'Rows that the map is fitted to; the others are placed beside them. Auto takes all rows while draws stay quick, ' +
      'all takes them always.',
  seed: 'Another number gives other draws of the same kind.',
  scale: 'How much uncertainty is shown. 1 is what the model says; auto is what random halves of the data say.',
};

/** Follow a reference into the schema's definitions. */
const whole = (field, schema) =>
  field.$ref ? { ...schema.$defs?.[field.$ref.split('/').pop()], ...field, $ref: undefined } : field;

/** Kind of a field: its choices, and words allowed beside numbers. */
function kindOf(given, schema) {
  const field = whole(given, schema);
  const choices = (field.anyOf ?? field.oneOf ?? [field]).map((choice) => whole(choice, schema));
  const isNull = choices.some((choice) => choice.type === 'null');
  const words = choices.flatMap((choice) => choice.enum ?? (choice.const === undefined ? [] : [choice.const]));
  const main = choices.find((choice) => ['integer', 'number', 'boolean'].includes(choice.type));
  const merged = { ...main, description: field.description ?? main?.description, default: field.default };
  if (main?.type === 'boolean') return { kind: 'boolean', field: merged };
  if (main) return { kind: 'number', field: merged, words, isNull };
  if (words.length) return { kind: 'choice', field, words, isNull };
  if (choices.some((choice) => choice.type === 'string')) return { kind: 'text', field, isNull };
  return { kind: 'other', field };
}

/** Split the fields into the visible ones and those behind “More”. */
export function fieldsOf(schema, without) {
  const all = Object.entries(schema?.properties ?? {}).filter(([name, field]) => {
    return !without.includes(name) && field.const === undefined && kindOf(field, schema).kind !== 'other';
  });
  if (all.length <= FEW) return { first: all, more: [] };
  const first = all.filter(([name]) => FIRST.includes(name));
  return { first, more: all.filter((entry) => !first.includes(entry)) };
}

/**
 * The form.
 * @param {{id: string, schema: object, values: object, without?: string[], onChange: (values: object) => void,
 *   defaults?: object, notes?: object, more?: boolean}} props - a value that is not in `values` is the schema's default
 */
export function SchemaForm({ id, schema, values, without = [], defaults = {}, notes = {}, more = true, onChange }) {
  const { first, more: rest } = fieldsOf(schema, without);
  const change = (name, value) => {
    const changed = { ...values, [name]: value };
    if (value === undefined) delete changed[name];
    onChange(changed);
  };
  const row = ([name, field]) => html`<${Field} key=${name} id=${`${id}-${name}`} name=${name} note=${notes[name]}
    control=${kindOf(field, schema)} value=${values[name] ?? defaults[name]}
      onChange=${(value) => change(name, value)} />`;
  const changed = rest.filter(([name]) => values[name] !== undefined).length;
  return html`
    <div class="form" data-testid=${id}>
      ${first.map(row)}
      ${more && rest.length > 0 && html`
        <details class="more">
          <summary>More settings${changed > 0 ? ` (${changed} changed)` : ''}</summary>
          <div class="form">${rest.map(row)}</div>
        </details>`}
    </div>
  `;
}

/** One field, with its description. */
function Field({ id, name, control, value, note, onChange }) {
  const { field } = control;
  const shown = value ?? field.default ?? '';
  const help = `${id}-help`;
  return html`
    <div class=${`field ${control.kind}`}>
      <label for=${id}>${labelOf(name)}</label>
      ${input(id, help, control, shown, onChange)}
      <p class="help" id=${help}>${HELP[name] ?? field.description}${note ? ` ${note}` : ''}</p>
    </div>
  `;
}

/** The control of a field. */
function input(id, help, { kind, field, words, isNull }, shown, onChange) {
  const common = { id, 'data-testid': id, 'aria-describedby': help };
  if (kind === 'boolean') {
    return html`<input type="checkbox" ...${common} checked=${Boolean(shown)}
      onChange=${(event) => onChange(event.target.checked)} />`;
  }
  if (kind === 'choice') {
    return html`<select ...${common} value=${shown ?? ''}
      onChange=${(event) => onChange(event.target.value || undefined)}>
      ${isNull && html`<option value="">automatic</option>`}
      ${words.map((word) => html`<option value=${word} selected=${word === shown}>${word}</option>`)}
    </select>`;
  }
  if (kind === 'text') {
    return html`<input type="text" ...${common} value=${shown}
      onInput=${(event) => onChange(event.target.value || undefined)} />`;
  }
  const isWord = words.includes(shown);
  const limits = {
    min: field.minimum ?? (field.exclusiveMinimum === undefined ? undefined : 0),
    max: field.maximum > Number.MAX_SAFE_INTEGER ? undefined : field.maximum,
    step: field.type === 'integer' ? 1 : 'any',
  };
  const heard = (event) => {
    const number = event.target.valueAsNumber;
    onChange(Number.isNaN(number) ? undefined : number);
  };
  return html`<span class="with-words">
    <input type="number" inputmode="decimal" ...${common} ...${limits} value=${isWord ? '' : shown}
      placeholder=${isWord ? shown : isNull ? 'automatic' : ''} onInput=${heard} />
    ${words.map((word) => html`<button type="button" class="word" aria-pressed=${shown === word}
      data-testid=${`${id}-${word}`} onClick=${() => onChange(shown === word ? undefined : word)}>${word}</button>`)}
  </span>`;
}
