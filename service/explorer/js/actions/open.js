/** Opening what exists already: a link, a job that runs or has ended, a posterior, a data set. */

import { askJson } from '../api.js';
import { set, state } from '../store.js';
import { audit, auditCoordinates, auditFirst, showAudited } from './audit.js';
import { openRow, showComparison, showEmbedding } from './compare.js';
import { choose } from './data.js';
import { openExampleMap } from './examples.js';
import { changedFrom, methodNamed } from '../methods.js';
import { draw, followFit, show } from './fit.js';
import { endOpening, isStillOpening, openWithin, pickedView, writeLink } from './link.js';
import { patiently } from '../jobs.js';
import { resolveColor } from '../lib/look.js';
import { lookMade } from './look.js';
import { choosePoints, hideClasses } from './selection.js';
import { clearResults, runWork } from './state.js';
import { dimension, points } from '../lib/frames.js';

/** Open the data, job, posterior and comparison of a link. */
export async function openLinked(link) {
  await runWork(() => openWithin(async () => {
    if (!link) {
      clearResults();
      return set({ dataset: null, pending: null, comparison: null, comparisonJob: null, view: 'draws', isSetUp: true });
    }
    try {
      await patiently(() => openResults(link));
      await patiently(() => auditLinked(link));
    } catch (error) {
      if (error.problem?.status !== 404 || !link.dataset ||
        link.dataset === error.problem.details?.dataset) throw error;
      await chooseOf(link, link.dataset); // its result was deleted, or its job is forgotten
      if (link.coordinates) return auditCoordinates(link.coordinates, link.made);
      const { method, ...parameters } = link.fit;
      if (methodNamed(method)) settings(method, parameters, link);
      throw error;
    }
    return undefined;
  }));
}

/** Show what a link names. */
async function openResults(link) {
  if (link.posterior) await openPosterior(link.posterior, link);
  else if (link.job && link.job !== state.job) await openJobOf(link);
  else if (link.example && !link.comparison) await openExampleMap();
  else if (link.dataset && link.dataset !== state.dataset?.id)
    await chooseOf(link, link.dataset);
  else if (!link.job) clearResults();
  if (!link.comparison) set({ comparison: null, comparisonJob: null });
  else if (link.comparison !== state.comparisonJob)
    return openComparison(await askJson(`/v1/jobs/${link.comparison}`), link);
  return showChosen(link);
}

/** Show the map of a comparison that a link names, if it names one, and the look of the link. */
function showChosen(link) {
  const row = state.comparison?.rows.find(({ label }) => label === link.method);
  if (row) openRow(row);
  if (row || isStillOpening()) showLook(link);
}

/** Audit the map that a link has opened, unless another one has been opened in the meantime. */
async function auditLinked(link) {
  if (link.method && state.single?.label !== link.method) return;
  if (link.audit && !state.isAudited) await audit();
  else if (link.job && state.single) await auditFirst(); // the map was still being made when the address was written
  if (!state.hidden) await hideLinked(link); // the colors may be of the audit
}

/** Hide the classes of a link. */
async function hideLinked({ color, hidden }) {
  // A color may be there only later, with the audit or with further columns; the classes are of that color.
  if (!hidden.length || (color !== 'auto' && resolveColor(state) !== color)) return;
  await lookMade();
  if (state.look?.legend.kind === 'classes') hideClasses(new Set(hidden), state.look);
}

/** Choose the data set of a link, with the column that names its subjects. */
const chooseOf = async ({ blocks }, id) => choose(await askJson(`/v1/datasets/${id}`), blocks);

/** Show the frame of a link, its axes, colors and selected rows. */
function showLook(link) {
  const { frame, view, color, shape, axes, turn, rows, filters, content } = link;
  set({
    turn: dimension() === 3 ? turn : null,
    view: pickedView() ?? view,
    color,
    shape,
    content,
    filters,
    hidden: null,
    axes: axes.every((axis) => axis < dimension()) ? axes : [0, 1],
    frame: Math.min(frame, state.draws?.count ?? -1),
  });
  choosePoints(rows.filter((row) => row < points()));
  hideLinked(link);
  if (!link.comparison || link.comparison === state.comparisonJob) endOpening();
}

/** Choose a data set of the list. */
export async function openDataset(dataset) {
  await choose(dataset);
  set({ isSetUp: true });
  writeLink();
}

/** Follow a job to what it makes. */
async function openJobOf(link) {
  const job = await askJson(`/v1/jobs/${link.job}`);
  const { request } = job;
  if (job.kind === 'fit') {
    await chooseOf(link, job.dataset);
    settings(request.spec.method, request.spec, link);
    await show(await followFit(job));
    await draw({ onDrawn: () => showLook(link) });
  } else if (job.kind === 'embedding') {
    await chooseOf(link, job.dataset);
    settings(request.method, request.parameters, link);
    await showEmbedding(job);
  } else if (job.kind === 'audit' && request.coordinates) {
    await chooseOf(link, job.dataset);
    await showAudited(job);
  } else if (job.kind === 'comparison') await openComparison(job, link);
  else if (job.posterior) await openPosterior(job.posterior, { ...link, ...request });
  else if (job.dataset ?? link.dataset) await chooseOf(link, job.dataset ?? link.dataset);
}

/** Show the comparison of a job. */
async function openComparison(job, link) {
  if (state.dataset?.id !== job.dataset) await chooseOf(link, job.dataset);
  const { methods } = job.request;
  const names = methods.map(({ method }) => method);
  const isChosen =
    // Not the usual ones, which have some methods twice.
    new Set(names).size === names.length && names.every((name) => methodNamed(name)?.makes === 'embedding');
  const forms = isChosen
    ? Object.fromEntries(methods.map(({ method, parameters }) => [method, changedFrom(method, parameters)]))
    : {};
  set({ view: 'compare', compared: isChosen ? names : null, forms: { ...state.forms, ...forms } });
  await showComparison(job, () => showChosen(link));
}

/** The scale of some draws, as a link has it. */
const scaleOf = (draws) => (draws?.isAuto ? 'auto' : draws?.scale);

/** Show a posterior and the draws of a link. */
async function openPosterior(id, link) {
  const { draws } = state;
  const { seed = draws?.seed, n_draws: count = draws?.count } = link;
  const [scale, blocks] = [link.scale ?? scaleOf(draws), link.blocks ?? null];
  if (id === state.posterior?.id && draws?.seed === seed && draws.count === count && scaleOf(draws) === scale) {
    if (state.single || blocks !== state.blocks) set({ blocks, single: null, audit: null, isAudited: false });
    return showLook(link); // it is there already
  }
  const posterior = await askJson(`/v1/posteriors/${id}`);
  const dataset = await askJson(`/v1/datasets/${posterior.dataset}`);
  if (state.dataset?.id === dataset.id) {
    clearResults();
    set({ blocks });
  } else await choose(dataset, blocks);
  settings(posterior.spec.method, posterior.spec, link);
  await show(posterior);
  return draw({ onDrawn: () => showLook(link) });
}

/** Fill the forms of a method and of its draws. */
function settings(method, parameters, { n_draws, seed, scale }) {
  const asked = Object.fromEntries(
    Object.entries({ n_draws, seed, scale }).filter(([, value]) => value !== undefined && value !== null),
  );
  set({
    method,
    forms: { ...state.forms, [method]: changedFrom(method, parameters), draws: { ...state.forms.draws, ...asked } },
  });
}
