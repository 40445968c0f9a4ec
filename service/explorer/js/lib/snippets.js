/** Shell and Python code that reproduces the view. */

import { SERVICE, address } from './base.js';

/** The settings that differ from the service's defaults. */
function changedSettings({ posterior, forms, method, draws, frame }) {
  const changed = { ...forms[method] };
  const index = frame > 0 ? frame - 1 : 0;
  const scale = draws && frame !== 0 ? draws.scale : 0;
  return { fit: { dataset: posterior.dataset, method, ...changed }, index, seed: draws?.seed ?? 0, scale };
}

const isAverage = ({ frame, draws }) => frame === -1 && draws;

/** Code that makes one embedding. */
function singleLines({ single }, language) {
  const { dataset, method, parameters, coordinates } = single.body;
  if (single.isGiven && language === 'python') {
    const of = [dataset, coordinates].filter(Boolean).map((id) => `"${id}"`).join(', ');
    return `from glle import Client\n\nclient = Client("${SERVICE()}")\nprint(client.audit(${of}${method
      ? `, method="${method}"` : ''}).verdict)`;
  }
  if (single.isGiven) {
    return `curl '${SERVICE()}/v1/audits?wait=60' \\\n  -H 'Content-Type: application/json' -d ` +
      `'${JSON.stringify(single.body)}'`;
  }
  if (language === 'python') {
    const keywords = Object.entries(parameters).map(([name, value]) => `, ${name}=${literal(value)}`);
    return [
      'from glle import Client',
      '',
      `client = Client("${SERVICE()}")`,
      `result = client.embed(client.dataset("${dataset}"), "${method}"${keywords.join('')})`,
      'embedding = result.embedding',
    ].join('\n');
  }
  return [
    '# embed; the answer has a link to the embedding',
    `curl '${SERVICE()}/v1/embeddings?wait=60' \\`,
    `  -H 'Content-Type: application/json' -d '${JSON.stringify(single.body)}'`,
    '# its coordinates',
    `curl '${location.origin}${address(single.path)}' -H 'Accept: application/x-npy' -o embedding.npy`,
  ].join('\n');
}

/** Shell commands. */
export function curlLines(state) {
  if (state.single) return singleLines(state, 'curl');
  const { fit, index, seed, scale } = changedSettings(state);
  const origin = SERVICE();
  const key = sessionStorage.getItem('glle-key') ? ` -H "Authorization: Bearer $GLLE_KEY"` : '';
  const fitted = [
    '# fit; the answer has the id of the posterior',
    `curl${key} '${origin}/v1/posteriors?wait=60' \\`,
    `  -H 'Content-Type: application/json' -d '${JSON.stringify(fit)}'`,
  ];
  if (isAverage(state)) {
    const { count, first } = state.draws;
    return [
      ...fitted,
      '# the draws whose average is shown, and the average',
      `job=$(curl${key} '${origin}/v1/posteriors/${state.posterior.id}/draws?wait=60' -H 'Content-Type: ` +
        `application/json' \\`,
      `  -d '${JSON.stringify({ n_draws: count, first, seed,
        scale })}' | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')`,
      `curl${key} "${origin}/v1/jobs/$job/result?wait=60" -H 'Accept: application/x-npy' -o draws.npy`,
      `python3 -c 'import numpy; numpy.save("average.npy", numpy.load("draws.npy").mean(axis=0))'`,
    ].join('\n');
  }
  return [
    ...fitted,
    '# the embedding that is shown',
    `curl${key} '${origin}/v1/posteriors/${state.posterior.id}/draws/${index}?seed=${seed}&scale=${scale}&wait=60' \\`,
    "  -H 'Accept: application/x-npy' -o draw.npy",
  ].join('\n');
}

/** Python code. */
export function pythonLines(state) {
  if (state.single) return singleLines(state, 'python');
  const { fit, index, seed, scale } = changedSettings(state);
  const { dataset, ...parameters } = fit;
  const keywords = Object.entries(parameters).map(([name, value]) => `${name}=${literal(value)}`);
  const count = state.draws?.count ?? 24;
  return [
    'from glle import Client',
    '',
    `client = Client("${SERVICE()}")`,
    `posterior = client.fit(client.dataset("${dataset}"), ${keywords.join(', ')})`,
    ...(isAverage(state) ? [] : [`embedding = posterior.draw(${index}, seed=${seed}, scale=${literal(scale)})`]),
    `draws = posterior.draws(${count}, seed=${seed}, scale=${literal(state.draws?.scale ?? 1)})`,
    ...(isAverage(state) ? ['embedding = draws.mean(axis=0)'] : []),
    `summary = posterior.summary(${count}, seed=${seed}, scale=${literal(state.draws?.scale ?? 1)})`,
  ].join('\n');
}

function literal(value) {
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (value === null) return 'None';
  return JSON.stringify(value);
}
