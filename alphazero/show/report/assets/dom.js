// Elements and numbers: text enters the page as text only, never as markup.
"use strict";
const dom = {
  // An element with attributes and children; a child that is no node becomes text.
  make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    dom.set(element, attributes, children);
    return element;
  },

  svg(name, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    dom.set(element, attributes, children);
    return element;
  },

  set(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "onclick" || key === "oninput" || key === "onkeydown" || key === "onchange") {
        element.addEventListener(key.slice(2), value);
      } else if (value !== null && value !== undefined && value !== false) {
        element.setAttribute(key, value === true ? "" : String(value));
      }
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined) {
        element.append(child instanceof Node ? child : document.createTextNode(String(child)));
      }
    }
  },
};

const text = {
  // A number as people read it: 1,234,567; 0.0123; 47.1%
  number(value, isShare = false) {
    if (value === null || value === undefined) return "-";
    if (isShare) return (100 * value).toFixed(1) + "%";
    const size = Math.abs(value);
    if (size !== 0 && size < 0.001) return value.toExponential(2);
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(4)));
  },

  counted(number, noun, plural = noun + "s") {
    return `${number.toLocaleString("en-US")} ${number === 1 ? noun : plural}`;
  },

  percent(share) {
    return share >= 0.995 ? "100%" : share >= 0.0995 ? Math.round(100 * share) + "%" : (100 * share).toFixed(1) + "%";
  },

  signed(value) {
    return (value > 0 ? "+" : value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(2);
  },
};
