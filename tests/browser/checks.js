// What the tests ask of a page. Each check returns what is wrong, in words; an empty list is good.
globalThis.checks = (() => {
  const numbers = text => text.match(/[\d.]+/g).map(Number);
  const channel = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const solid = colour => colour.startsWith("rgb(");
  const contrast = (one, other) => {
    const [high, low] = [light(numbers(one)), light(numbers(other))].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };

  // The nearest painted background; a page without any is white.
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (solid(colour)) return colour;
      if (colour !== "rgba(0, 0, 0, 0)") throw new Error(`half a background: ${colour}`);
    }
    return "rgb(255, 255, 255)";
  };
  const veiled = element => {
    for (let at = element; at; at = at.parentElement) if (getComputedStyle(at).opacity !== "1") return true;
    return false;
  };

  // Every piece of visible text with its element, the labels of stacked cells included.
  const texts = () => {
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect(), element = node.parentElement;
      const hidden = getComputedStyle(element.closest("thead") ?? element).clipPath !== "none";
      if (!node.data.trim() || !box.width || hidden) continue;
      const style = getComputedStyle(element), drawn = element instanceof SVGElement;
      const size = parseFloat(style.fontSize) * (drawn ? element.getScreenCTM().a : 1);
      found.push({ said: node.data.trim(), element, box, size, colour: drawn ? style.fill : style.color });
    }
    for (const cell of document.querySelectorAll("td")) {
      const style = getComputedStyle(cell, "::before"), box = cell.getBoundingClientRect();
      if (style.content !== "none" && box.width)
        found.push({ said: style.content, element: cell, box, colour: style.color, size: parseFloat(style.fontSize) });
    }
    return found;
  };

  const MARKS = ["dot", "whisker", "zero"].map(name => `svg .${name}`).join();
  // Text in a place that scrolls by itself may lie past the screen; the page may not.
  const scrolls = element => {
    for (let at = element; at; at = at.parentElement) if (getComputedStyle(at).overflowX === "auto") return true;
    return false;
  };
  const drawn = text => text.element instanceof SVGElement;
  // Boxes of text hold some air above and below the letters.
  const inner = ({ box }) => [box.left, box.right, box.top + box.height * 0.2, box.bottom - box.height * 0.2];
  const touch = (one, other) => {
    const [left, right, top, bottom] = inner(one), [start, end, high, low] = inner(other);
    return left < end && start < right && top < low && high < bottom;
  };

  return {
    luminance: element => light(numbers(behind(element))),
    wide: () => {
      const root = document.documentElement, room = root.clientWidth;
      const past = ({ box }) => box.left < -0.5 || box.right > room + 0.5;
      const out = texts().filter(text => past(text) && !text.element.closest(".skip") && !scrolls(text.element));
      const said = out.map(({ said, box }) => `${said}: ${box.left} to ${box.right} of ${room}`);
      return root.scrollWidth > room ? [...said, `page: scrolls to ${root.scrollWidth} of ${room}`] : said;
    },
    small: least => texts().filter(({ size }) => size < least).map(({ said, size }) => `${said}: ${size} px`),
    pale: least => texts()
      .filter(({ element, colour }) => !solid(colour) || veiled(element) || contrast(colour, behind(element)) < least)
      .map(({ said, element, colour }) => `${said}: ${colour} on ${behind(element)}`),
    faint: least => [...document.querySelectorAll(MARKS)]
      .filter(mark => contrast(getComputedStyle(mark).stroke, behind(mark)) < least).map(mark => mark.outerHTML),
    dark: () => [...document.querySelectorAll("body *")]
      .filter(element => light(numbers(behind(element))) < 0.8).map(element => element.outerHTML.slice(0, 80)),
    // Words in a drawing that touch other words, there or on the page.
    overlaps: () => {
      const all = texts();
      return all.flatMap((one, place) => !drawn(one) ? [] : all
        .filter((other, next) => touch(one, other) && (next > place || (next < place && !drawn(other))))
        .map(other => `${one.said} / ${other.said}`));
    },
  };
})();
