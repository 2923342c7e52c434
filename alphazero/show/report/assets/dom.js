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

  // A button that copies a text; a page from a file has no clipboard in some browsers.
  copier(label, value) {
    const say = (words) => {
      button.textContent = words;
      setTimeout(() => (button.textContent = label), 2000);
    };
    const button = dom.make("button", { type: "button", class: "copier", "aria-live": "polite", "data-copies": value, onclick: async () => {
      try {
        await navigator.clipboard.writeText(value);
        say("Copied");
      } catch (error) {
        const area = dom.make("textarea", { class: "hidden", "aria-hidden": "true" });
        area.value = value;
        button.after(area);
        area.select();
        say(document.execCommand("copy") ? "Copied" : "Select the text and copy it");
        area.remove();
        button.focus();
      }
    } }, label);
    return button;
  },

  // A colour of style.css, as the browser's scheme has it.
  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
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

  // As base/log.py has it: '8 s', '2 min 10 s', '1 h 2 min', '3 days 4 h'.
  duration(minutes) {
    const [seconds, whole, hours] = [Math.round(60 * minutes), Math.round(minutes), Math.round(minutes / 60)];
    const pair = (first, rest, unit) => (rest ? `${first} ${rest} ${unit}` : first);
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return pair(`${Math.floor(seconds / 60)} min`, seconds % 60, "s");
    if (whole < 1440) return pair(`${Math.floor(whole / 60)} h`, whole % 60, "min");
    return pair(text.counted(Math.floor(hours / 24), "day"), hours % 24, "h");
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
