/** Addresses of the service, which a proxy may serve below a path: the page finds the path by its own address. */

const BASE = new URL('../../..', import.meta.url).pathname.replace(/\/$/, '');

/** A path of the service, or a link that already has the prefix, as the browser has to send it. */
export const address = (path) => (BASE && path.startsWith(`${BASE}/`) ? path : BASE + path);

/** Where a client finds the service. */
export const SERVICE = () => location.origin + BASE;
