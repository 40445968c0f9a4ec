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

async function follow() {
  const { filters, dataset, columns } = state;
  const filtered = filters && dataset && columns ? columnsOfData().filter(({ name }) => filters[name]) : [];
  if (!filtered.length) return set({ passing: null });
  const found = await ask({ columns: filtered, filters, n: points() });
  return found && state.filters === filters && state.dataset === dataset && set({ passing: found });
}
