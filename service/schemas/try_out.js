// Sends the requests of the forms of /docs to this service, and shows the answers.
const SHOWN = 20_000; // characters of an answer
const base = new URL('.', location.href);

async function send(form) {
  const { method, path } = form.dataset;
  const query = new URLSearchParams();
  let target = path;
  for (const { name, value, dataset } of form.querySelectorAll('input[name]')) {
    if (value && dataset.in === 'path') target = target.replace(`{${name}}`, encodeURIComponent(value));
    const parts = dataset.list ? value.split(',') : [value];
    if (value && dataset.in === 'query') for (const part of parts) query.append(name, part.trim());
  }
  const key = document.querySelector('#key').value;
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const body = form.querySelector('[type=file]')?.files[0] ?? form.querySelector('textarea')?.value;
  if (body) headers['Content-Type'] = form.querySelector('select').value;
  const url = new URL(`${target.slice(1)}${query.size ? `?${query}` : ''}`, base);
  const answer = await fetch(url, { method, headers, body: body || undefined });
  const type = answer.headers.get('Content-Type') ?? '';
  const isText = /json|^text/.test(type);
  const size = async () => (await answer.arrayBuffer()).byteLength;
  const text = isText ? await answer.text() : `${await size()} bytes of ${type || 'nothing'}`;
  const shown = type.includes('json') ? JSON.stringify(JSON.parse(text), null, 1) : text;
  return `${answer.status} ${answer.statusText}\n${shown}`.slice(0, SHOWN);
}

for (const form of document.forms) {
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const output = form.querySelector('output');
    output.textContent = 'Waiting for the answer';
    output.textContent = await send(form).catch((error) => `No answer: ${error.message}`);
  });
}
