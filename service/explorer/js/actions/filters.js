/** Filters of the columns: which rows the map shows, and which it dims. */

import { newest } from '../lib/background.js';
import { points } from '../lib/frames.js';
import { columnsOfData } from '../lib/rows.js';
import { set, state, subscribe } from '../store.js';

const ask = newest('histogramsOf');

/** Filter a column, or no longer filter it. */
export function filterBy(name, filter) {
  const { [name]: _, ...others } = state.filters ?? {};
  const filters = filter ? { ...others, [name]: filter } : others;
  set({ filters: Object.keys(filters).length ? filters : null });
}

/** Keep the rows that pass in step with the filters. */
export const watchFilters = () => subscribe((changes) =>
  ['filters', 'columns', 'metadata', 'dataset'].some((name) => name in changes) && follow());

/** The filter of a column, or null; a link may have anything in its place. */
export function filterOf(name) {
  const { filters } = state;
  return filters && Object.hasOwn(filters, name) && Array.isArray(filters[name]) ? filters[name] : null;
}

async function follow() {
  const { filters, dataset, columns, metadata } = state;
  const filtered = dataset && columns ? columnsOfData().filter(({ name }) => filterOf(name)) : [];
  if (!filtered.length) return set({ passing: null });
  const found = await ask({ columns: filtered, filters: filtered.map(({ name }) => filterOf(name)), n: points() });
  const isCurrent = state.filters === filters && state.dataset === dataset && state.columns === columns &&
    state.metadata === metadata;
  return found && isCurrent && set({ passing: found });
}
