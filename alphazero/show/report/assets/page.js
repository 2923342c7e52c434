// The page: sections from the report's data, drawn anew where a switch or, while a run is watched, the data changes.
"use strict";
const page = {
  state: { time: false, log: false, viewers: {} },
  views: [],
  report: JSON.parse(document.getElementById("data").textContent),
  watchedEvery: Number(document.body.dataset.watch || 0),
  scheme: window.matchMedia("(prefers-color-scheme: dark)"),

  async start() {
    document.addEventListener("keydown", page.key);
    // Charts have their colours from style.css when they are drawn; paper is always light (style.css).
    page.scheme.addEventListener("change", () => window.matchMedia("print").matches || page.draw());
    await page.draw();
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView(); // it was not there when the browser looked for it
    if (page.watchedEvery) page.watch();
  },

  // Arrow keys step through the game that is in view, wherever the focus is; not where they have another meaning.
  key(event) {
    const viewer = document.querySelector("[data-viewer]");
    if (!viewer || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest && event.target.closest("input, select, textarea, .scroll")) return;
    const box = viewer.getBoundingClientRect();
    const hasFocus = viewer.contains(event.target);
    if (!hasFocus && (box.bottom < 0 || box.top > window.innerHeight)) return;
    if (viewer.takesKey(event.key, hasFocus)) event.preventDefault();
  },

  async draw() {
    const report = page.report;
    const views = page.views.splice(0);
    const main = dom.make("main", {}, page.result(report), page.runs(report));
    const groups = [...new Set(report.panels.map((panel) => panel.group))];
    const after = { "What the network knows": ["wrong"], "Self-play": ["openings", "games"] };
    const sections = [];
    for (const group of groups) {
      const panels = report.panels.filter((panel) => panel.group === group && !panel.empty).map((panel) => charts.draw(panel, report, page.state, page.views));
      sections.push(...panels);
      const isByTwos = panels.length === 4 || panels.length === 2;
      if (panels.length) main.append(page.section(group, dom.make("div", { class: isByTwos ? "grid by-twos" : "grid" }, panels)));
      for (const what of after[group] || []) {
        if (report.runs.some((run) => page.numOf(run, what))) main.append(page.section(page.perRunTitles[what], page.perRun(report, what)));
      }
    }
    main.append(...page.missing(report));
    const old = document.querySelector("main");
    const place = window.scrollY;
    const isOpen = new Set(page.folds(old).filter((one) => one.open).map(page.nameOf));
    page.folds(main).forEach((one) => (one.open = isOpen.has(page.nameOf(one))));
    const focused = document.activeElement.dataset.switch;
    old.replaceWith(main);
    page.head(report, [...main.querySelectorAll("h2")].map((title) => title.textContent));
    if (focused) document.querySelector(`[data-switch="${focused}"]`).focus();
    main.style.minHeight = old.offsetHeight ? `${old.offsetHeight}px` : "";
    for (const section of sections) if (section.finish) await section.finish();
    views.forEach((view) => page.remove(view));
    window.scrollTo(0, place);
    document.body.dataset.scheme = page.scheme.matches ? "dark" : "light";
    document.body.dataset.drawn = "yes";
  },

  // What a reader opens stays open when the page is drawn anew; its name is that without counts.
  folds(main) {
    return [...main.querySelectorAll(".run details, .missing")];
  },

  nameOf(details) {
    const title = details.closest("article, section, main").querySelector("h2, h3");
    return `${title ? title.textContent : ""} ${details.firstChild.textContent.replace(/[\d,]+/g, "")}`;
  },

  remove(view) {
    for (const one of Array.isArray(view) ? view : [view]) one.remove();
  },

  head(report, titles) {
    const names = report.runs.map((run) => run.name);
    document.title = names.join(", ") + " - alphazero report";
    const choice = (key, label, values) => dom.make("span", { class: "choice", role: "group", "aria-label": label }, dom.make("span", { class: "unit" }, label), values.map(([name, value]) =>
      dom.make("button", { type: "button", "data-switch": `${key}-${name}`, "aria-pressed": String(page.state[key] === value), onclick: async () => {
        page.state[key] = value;
        await page.draw();
      } }, name)));
    const dots = names.map((name, index) => dom.make("span", { class: "run-name" }, names.length > 1 ? page.dot(index) : null, name));
    document.querySelector("header").replaceChildren(
      dom.make("div", { class: "title" }, dom.make("h1", {}, dots), dom.make("span", { class: "unit", id: "made", role: "status" }, page.madeText(report))),
      dom.make("div", { class: "switches" }, choice("time", "along", [["steps", false], ["time", true]]), choice("log", "scale", [["linear", false], ["log", true]])),
      dom.make("nav", { "aria-label": "sections" }, titles.map((title) => dom.make("a", { href: "#" + page.anchor(title) }, title))),
    );
  },

  madeText(report) {
    return `${page.watchedEvery ? "watching, " : ""}as of ${report.made}`;
  },

  dot(index) {
    const dot = dom.make("i", { class: "dot" });
    dot.style.background = `var(--curve-${index % charts.numColours})`;
    return dot;
  },

  anchor(title) {
    return title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  },

  section(title, ...children) {
    return dom.make("section", { class: "group", id: page.anchor(title), tabindex: -1, "aria-label": title }, dom.make("h2", {}, title), children);
  },

  // What came of it, whether something is wrong, what to do next.
  result(report) {
    const isOne = report.runs.length === 1;
    const body = isOne ? report.runs[0].result : report.results;
    const concerns = report.runs.flatMap((run) => run.result.concerns.map((one) => (isOne ? one : `${run.name}: ${one}`)));
    return page.section("Result", dom.make("article", { class: "card result" },
      dom.make("p", { class: "verdict" }, body.sentence),
      isOne ? page.figures(body.figures) : page.results(report),
      concerns.length ? dom.make("ul", { class: "concerns" }, concerns.map((one) => dom.make("li", {}, one))) : dom.make("p", { class: "unit" }, "No alarm and no skipped step."),
      body.next.length ? dom.make("h3", {}, "What to do next") : null,
      dom.make("ul", { class: "next-steps" }, body.next.map(([what, command, isKnown]) => dom.make("li", {}, dom.make("span", {}, what), dom.make("code", {}, command), isKnown ? dom.copier("Copy", command) : null)))));
  },

  figures(rows) {
    if (!rows.length) return null;
    const cell = (row) => dom.make("span", { class: row.verdict }, row.change + (row.verdict ? `, ${row.verdict}` : ""));
    return page.scroll("figures", page.table(["", "first", "last", "change", "best"], rows.map((row) => [[row.label, dom.make("span", { class: "unit" }, " ", row.unit)], row.first, dom.make("b", {}, row.last), row.change && cell(row), row.best])));
  },

  // A row for each run; what is the best of a column is marked.
  results(report) {
    const cell = ([value, note, isBest]) => [isBest ? dom.make("b", { class: "better" }, `${value} \u2605`) : value || "-", note ? dom.make("div", { class: "unit" }, note) : null];
    return page.scroll("runs", page.table(report.results.head, report.results.rows.map((row, index) => row.map((one, place) => (place === 0 ? [page.dot(index), one[0]] : cell(one))))));
  },

  // What the runs are; what differs between them.
  runs(report) {
    const isOne = report.runs.length === 1;
    const list = (rows, kind) => dom.make("dl", { class: kind }, rows.map(([name, value]) => dom.make("div", {}, dom.make("dt", {}, name), dom.make("dd", {}, value))));
    const cards = report.runs.map((run, index) => dom.make("article", { class: "card run" },
      isOne ? null : dom.make("h3", {}, page.dot(index), run.name),
      isOne ? list(run.facts, null) : page.folded("Facts", list(run.facts, null)),
      page.folded(`Settings that differ from the defaults (${run.settings.length})`, page.settings(run)),
      run.origin.length ? page.folded("Command and software", list(run.origin, "wide")) : null,
      run.events.length ? page.folded(`Events (${run.events.length})`, page.events(run)) : null));
    const table = isOne ? null : report.compared.length
      ? dom.make("article", { class: "card" }, dom.make("h3", {}, "Settings in which the runs differ"), page.scroll("compared", page.table(["setting", ...report.runs.map((run) => run.name)], report.compared.map(([name, values]) => [name, ...values]))))
      : dom.make("article", { class: "card" }, dom.make("p", {}, "The runs have the same settings."));
    const hint = "In each picture: drag to zoom in, double-click to see all of it again; point at a curve for its values, click on a name to hide it. A star is the best value; upright lines are restarts (dashed), skipped steps (orange) and alarms (red). Arrow keys step through a game that is in view.";
    return page.section(isOne ? "The run" : "The runs", table, dom.make("div", { class: isOne ? "" : "cards" }, cards), dom.make("p", { class: "unit hint" }, hint));
  },

  // What has no data, in a line, and why.
  missing(report) {
    const reasons = new Map();
    const add = (reason, title) => reasons.set(reason, [...(reasons.get(reason) || []), title]);
    report.panels.filter((panel) => panel.empty).forEach((panel) => add(panel.empty, panel.title));
    for (const [what, title] of Object.entries(page.perRunTitles)) {
      if (!report.runs.some((run) => page.numOf(run, what))) add(report.runs[0][`no_${what}`], title);
    }
    if (!reasons.size) return [];
    const titles = [...reasons.values()].flat();
    return [dom.make("details", { class: "missing" },
      dom.make("summary", {}, `Without data: ${titles.join(", ")}`),
      dom.make("ul", {}, [...reasons].map(([reason, some]) => dom.make("li", {}, dom.make("b", {}, some.join(", ")), `: ${reason}`))))];
  },

  perRunTitles: { wrong: "Where it is most wrong", openings: "Openings", games: "Games" },

  numOf(run, what) {
    return what === "openings" ? (run.openings ? run.openings.moves.length : 0) : run[what].length;
  },

  settings(run) {
    return dom.make("div", { class: "settings" }, run.settings.map(([name, value, usual]) => dom.make("div", {}, dom.make("span", { class: "unit" }, name), " ", dom.make("b", {}, value), dom.make("span", { class: "unit" }, ` (default ${usual})`))));
  },

  folded(title, content) {
    return dom.make("details", {}, dom.make("summary", {}, title), content);
  },

  // What is wider than the page scrolls in a separate box, also by keys.
  scroll(name, table) {
    return dom.make("div", { class: `scroll ${name}`, tabindex: 0, role: "region", "aria-label": name }, table);
  },

  table(head, rows) {
    return dom.make("table", { class: "plain" }, dom.make("thead", {}, dom.make("tr", {}, head.map((name) => dom.make("th", {}, name)))), dom.make("tbody", {}, rows.map((row) => dom.make("tr", {}, row.map((cell) => dom.make("td", {}, cell === "" ? "-" : cell))))));
  },

  events(run) {
    return dom.make("ul", { class: "events" }, run.events.map((event) => {
      const dot = dom.make("i", { class: "dot" });
      dot.style.background = `var(--${charts.eventColours[event.kind]})`;
      const where = event.step === null ? "step not known" : `step ${event.step.toLocaleString("en-US")}`;
      return dom.make("li", {}, dot, dom.make("b", {}, `${event.kind}, ${where}`), ` ${event.text}`, event.advice ? dom.make("span", { class: "advice" }, ` ${event.advice}`) : null);
    }));
  },

  // Games, openings or wrong positions: those of the run that is chosen.
  perRun(report, what) {
    const place = dom.make("div", {});
    const show = (index) => {
      const run = report.runs[index];
      page.state[what] = index;
      const state = (page.state.viewers[run.name] = page.state.viewers[run.name] || { game: null, ply: null });
      const draw = { games: () => run.games.length && games.viewer(run, state), openings: () => run.openings && tree.draw(run), wrong: () => run.wrong.length && games.wrong(run) };
      const isText = [...run.wrong, ...run.games.map((game) => game.frames[0])].some((one) => one.drawing !== undefined);
      const thoughts = `${isText ? "moves" : "arrows"} and value are the`;
      const notes = {
        games: run.games_from === "search" ? `The newest games of self-play: ${thoughts} search's.` : `Held-out games as the network sees them at step ${run.games_step}: ${thoughts} network's own.`,
        openings: "",
        wrong: `At step ${run.wrong_step}.${isText ? "" : " Blue: what the network prefers; green: the right move."}`,
      };
      const found = draw[what]();
      const panel = dom.make("section", { class: "panel full", id: `panel-${what}`, "data-marks": page.numOf(run, what) });
      if (notes[what]) panel.append(dom.make("p", { class: "note" }, notes[what]));
      panel.append(...[found].flat().filter(Boolean));
      place.replaceChildren(...(report.runs.length > 1 ? [chooser(index)] : []), panel);
    };
    const chooser = (chosen) => dom.make("div", { class: "chooser" }, report.runs.map((run, index) => (page.numOf(run, what) ? dom.make("button", { type: "button", "aria-pressed": String(index === chosen), onclick: () => show(index) }, page.dot(index), run.name) : null)));
    const chosen = page.state[what];
    const isThere = chosen < report.runs.length && page.numOf(report.runs[chosen], what) > 0;
    show(isThere ? chosen : report.runs.findIndex((run) => page.numOf(run, what)));
    return place;
  },

  // Ask the server that made this page for newer data; it is on this machine.
  watch() {
    let tag = "";
    const look = async () => {
      const made = document.getElementById("made");
      try {
        const answer = await fetch("report.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          tag = answer.headers.get("ETag") || "";
          const report = await answer.json();
          if (report.made !== page.report.made) {
            page.report = report;
            await page.draw();
          }
        }
        made.classList.remove("lost");
      } catch (error) {
        made.classList.add("lost");
        made.textContent = `no longer watching (alphazero report has ended), as of ${page.report.made}`;
      }
      setTimeout(look, 1000 * page.watchedEvery);
    };
    setTimeout(look, 1000 * page.watchedEvery);
  },
};
page.start();
