/** A drawing context that writes SVG in place of pixels, with what the overlay uses of a canvas's context. */

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const ANCHORS = { left: 'start', center: 'middle', right: 'end' };

/** Text for XML. */
export const escapeXml = (text) => String(text ?? '').replaceAll(/[&<>"]/g, (sign) => ESCAPES[sign]);

const places = (...values) => values.map((value) => value.toFixed(2)).join(' ');

/** Records paths and texts; `elements` are their SVG. */
export class SvgContext {
  elements = [];
  strokeStyle = '#000';
  fillStyle = '#000';
  lineWidth = 1;
  globalAlpha = 1;
  #path = '';
  #dash = '';

  beginPath() {
    this.#path = '';
  }

  moveTo(x, y) {
    this.#path += `M${places(x, y)}`;
  }

  lineTo(x, y) {
    this.#path += `${this.#path ? 'L' : 'M'}${places(x, y)}`;
  }

  /** A whole circle. */
  arc(x, y, radius) {
    this.ellipse(x, y, radius, radius, 0);
  }

  /** A whole ellipse, as two arcs. */
  ellipse(x, y, long, short, angle) {
    const [dx, dy] = [long * Math.cos(angle), long * Math.sin(angle)];
    const arc = `A${places(long, short, (angle * 180) / Math.PI)} 0 1 `;
    this.#path += `M${places(x + dx, y + dy)}${arc}${places(x - dx, y - dy)}${arc}${places(x + dx, y + dy)}Z`;
  }

  /** A filled circle. */
  circle(x, y, radius) {
    this.elements.push(`<circle cx="${x.toFixed(2)}" cy="${y.toFixed(2)}" r="${radius.toFixed(2)}" fill="${this.fillStyle}" opacity="${this.globalAlpha}"/>`);
  }

  setLineDash(lengths) {
    this.#dash = lengths.length ? ` stroke-dasharray="${lengths.join(' ')}"` : '';
  }

  stroke() {
    this.elements.push(`<path d="${this.#path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" opacity="${this.globalAlpha}"${this.#dash}/>`);
  }

  fill() {
    this.elements.push(`<path d="${this.#path}" fill="${this.fillStyle}" opacity="${this.globalAlpha}"/>`);
  }

  fillRect(x, y, width, height) {
    this.elements.push(`<rect x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${width.toFixed(2)}" height="${height}" fill="${this.fillStyle}" opacity="${this.globalAlpha}"/>`);
  }

  fillText(text, x, y) {
    this.#text(text, x, y, `fill="${this.fillStyle}"`);
  }

  strokeText(text, x, y) {
    this.#text(text, x, y, `fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-linejoin="round"`);
  }

  #text(text, x, y, paint) {
    this.elements.push(`<text x="${x.toFixed(2)}" y="${(y + 4).toFixed(2)}" text-anchor="${ANCHORS[this.textAlign]}" style="font:${this.font}" ${paint}>${escapeXml(text)}</text>`);
  }
}
