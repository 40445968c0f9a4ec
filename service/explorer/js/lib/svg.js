/** A canvas context that writes SVG: the part of the interface by which pictures are drawn. */

import { escapeHtml } from './html.js';

const digits = (value) => Number(value.toFixed(2));

/** A path, as `Path2D`. */
export class SvgPath {
  d = '';

  moveTo(x, y) {
    this.d += `M${digits(x)} ${digits(y)}`;
  }

  lineTo(x, y) {
    this.d += `L${digits(x)} ${digits(y)}`;
  }

  closePath() {
    this.d += 'Z';
  }

  /** A whole circle. */
  arc(x, y, radius) {
    this.ellipse(x, y, radius, radius, 0);
  }

  /** A whole ellipse. */
  ellipse(x, y, long, short, angle) {
    const [dx, dy] = [long * Math.cos(angle), long * Math.sin(angle)];
    const half = `A${digits(long)} ${digits(short)} ${digits((angle * 180) / Math.PI)} 0 1`;
    this.d += `M${digits(x + dx)} ${digits(y + dy)}${half}${digits(x - dx)} ${digits(y - dy)}${half}${digits(x +
      dx)} ${digits(y + dy)}Z`;
  }
}

/** A context of this size; `text` returns the file. */
export class SvgContext extends SvgPath {
  globalAlpha = 1;
  lineWidth = 1;
  fillStyle = '#000';
  strokeStyle = '#000';
  font = '12px sans-serif';
  textAlign = 'left';
  textBaseline = 'alphabetic';
  lineCap = 'butt';
  lineJoin = 'miter';
  #parts = [];
  #offset = [0, 0];
  #dash = [];

  constructor(width, height, surface) {
    super();
    this.#parts.push(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" ` +
      `height="${height}"><rect width="100%" height="100%" fill="${surface}"/>`);
  }

  translate(x, y) {
    this.#offset = [this.#offset[0] + x, this.#offset[1] + y];
  }

  beginPath() {
    this.d = '';
  }

  setLineDash(dash) {
    this.#dash = dash;
  }

  fill(path = this) {
    this.#add('path', `d="${path.d}" fill-rule="evenodd"`, this.#fill());
  }

  stroke() {
    this.#add('path', `d="${this.d}" fill="none"`, this.#line());
  }

  fillRect(x, y, width, height) {
    this.#add(
      'rect',
      `x="${digits(x)}" y="${digits(y)}" width="${digits(width)}" height="${digits(height)}"`,
      this.#fill(),
    );
  }

  fillText(text, x, y) {
    this.#write(text, x, y, this.#fill());
  }

  strokeText(text, x, y) {
    this.#write(text, x, y, `fill="none" ${this.#line()}`);
  }

  /** The whole file. */
  text() {
    return `${this.#parts.join('\n')}\n</svg>\n`;
  }

  #fill = () => `fill="${this.fillStyle}" fill-opacity="${this.globalAlpha}"`;
  #line = () =>
    `stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-opacity="${this.globalAlpha}" ` +
      `stroke-linecap="${this.lineCap}" stroke-linejoin="${this.lineJoin}" stroke-dasharray="${this.#dash.join(' ') ||
        'none'}"`;

  #write(text, x, y, style) {
    const [anchor, baseline] = [
      { center: 'middle', right: 'end' }[this.textAlign] ?? 'start',
      this.textBaseline === 'middle' ? 'central' : 'alphabetic',
    ];
    this.#add(
      'text',
      `x="${digits(x)}" y="${digits(y)}" style="font:${this.font}" text-anchor="${anchor}" ` +
        `dominant-baseline="${baseline}"`,
      style,
      escapeHtml(String(text)),
    );
  }

  #add(tag, place, style, content = '') {
    const [x, y] = this.#offset;
    this.#parts.push(`<${tag} transform="translate(${x} ${y})" ${place} ${style}>${content}</${tag}>`);
  }
}
