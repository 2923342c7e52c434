// The page: sections from the report's data, drawn anew where a switch or, while a run is watched, the data changes.
"use strict";
const page = {
  state: { time: false, log: false, viewers: {} },
  views: [],
  report: JSON.parse(document.getElementById("data").textContent),
  watchedEvery: Number(document.body.dataset.watch || 0),

  async start() {
    await page.draw();
    if (page.watchedEvery) page.watch();
  },

  async draw() {
    const report = page.report;
    const views = page.views.splice(0);
    const main = dom.make("main", {}, page.runs(report));
    const groups = [...new Set(report.panels.map((panel) => panel.group))];
    const sections = [];
    for (const group of groups) {
      const panels = await Promise.all(report.panels.filter((panel) => panel.group === group).map((panel) => charts.draw(panel, report, page.state, page.views)));
      sections.push(...panels);
      const [full, empty] = [true, false].map((isDrawn) => panels.filter((panel) => Boolean(panel.finish || Number(panel.dataset.marks)) === isDrawn));
      const isByTwos = panels.length === 4 || panels.length === 2;
      main.append(page.section(group, dom.make("div", { class: isByTwos ? "grid by-twos" : "grid" }, full, empty)));
      if (group === "What the network knows") main.append(page.section("Where it is most wrong", page.perRun(report, "wrong")));
      if (group === "Self-play") {
        main.append(page.section("Openings", page.perRun(report, "openings")), page.section("Games", page.perRun(report, "games")));
      }
    }
    const old = document.querySelector("main");
    const place = window.scrollY;
    old.replaceWith(main);
    page.head(report, [...main.querySelectorAll("h2")].map((title) => title.textContent));
    main.style.minHeight = old.offsetHeight ? `${old.offsetHeight}px` : "";
    for (const section of sections) if (section.finish) await section.finish();
    views.forEach((view) => page.remove(view));
    window.scrollTo(0, place);
    document.body.dataset.drawn = "yes";
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
      dom.make("div", { class: "title" }, dom.make("h1", {}, dots), dom.make("span", { class: "unit", id: "made" }, page.madeText(report))),
      dom.make("div", { class: "switches" }, choice("time", "along", [["steps", false], ["time", true]]), choice("log", "scale", [["linear", false], ["log", true]])),
      dom.make("nav", {}, titles.map((title) => dom.make("a", { href: "#" + page.anchor(title) }, title))),
    );
  },

  madeText(report) {
    return `${page.watchedEvery ? "watching, " : ""}as of ${report.made}`;
  },

  dot(index) {
    const dot = dom.make("i", { class: "dot" });
    dot.style.background = charts.colours[index % charts.colours.length];
    return dot;
  },

  anchor(title) {
    return title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  },

  section(title, ...children) {
    return dom.make("section", { class: "group", id: page.anchor(title) }, dom.make("h2", {}, title), children);
  },

  // What the runs are; what differs between them.
  runs(report) {
    const isOne = report.runs.length === 1;
    const cards = report.runs.map((run, index) => dom.make("article", { class: "card run" },
      isOne ? null : dom.make("h3", {}, page.dot(index), run.name),
      dom.make("dl", {}, run.facts.map(([name, value]) => dom.make("div", { class: name === "command" || name === "software" || name === "platform" ? "wide" : null }, dom.make("dt", {}, name), dom.make("dd", {}, value)))),
      page.folded(`Settings that differ from the defaults (${run.settings.length})`, page.settings(run), isOne),
      page.folded(`Weights (${run.weights.length})`, page.table(["file", "size"], run.weights), false),
      run.events.length ? page.folded(`Events (${run.events.length})`, page.events(run), true) : dom.make("p", { class: "unit" }, "No restart, no skipped step, no alarm.")));
    const table = isOne ? null : report.compared.length
      ? dom.make("article", { class: "card" }, dom.make("h3", {}, "Settings in which the runs differ"), dom.make("div", { class: "scroll" }, page.table(["setting", ...report.runs.map((run) => run.name)], report.compared.map(([name, values]) => [name, ...values]))))
      : dom.make("article", { class: "card" }, dom.make("p", {}, "The runs have the same settings."));
    const hint = "In each picture: drag to zoom in, double-click to see all of it again; point at a curve for its values, click on a name to hide it. A star is the best value; upright lines are restarts (dashed), skipped steps (orange) and alarms (red).";
    return page.section(isOne ? "The run" : "The runs", table, dom.make("div", { class: isOne ? "" : "cards" }, cards), dom.make("p", { class: "unit hint" }, hint));
  },

  settings(run) {
    return dom.make("div", { class: "settings" }, run.settings.map(([name, value, usual]) => dom.make("div", {}, dom.make("span", { class: "unit" }, name), " ", dom.make("b", {}, value), dom.make("span", { class: "unit" }, ` (default ${usual})`))));
  },

  folded(title, content, isOpen) {
    return dom.make("details", { open: isOpen }, dom.make("summary", {}, title), dom.make("div", { class: "scroll" }, content));
  },

  table(head, rows) {
    return dom.make("table", { class: "plain" }, dom.make("thead", {}, dom.make("tr", {}, head.map((name) => dom.make("th", {}, name)))), dom.make("tbody", {}, rows.map((row) => dom.make("tr", {}, row.map((cell) => dom.make("td", {}, cell === "" ? "-" : cell))))));
  },

  events(run) {
    return dom.make("ul", { class: "events" }, run.events.map((event) => {
      const dot = dom.make("i", { class: "dot" });
      dot.style.background = charts.eventColours[event.kind];
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
      const notes = {
        games: run.games_from === "search" ? "The newest games of self-play: arrows and value are the search's." : `Held-out games as the network sees them at step ${run.games_step}: arrows and value are the network's own.`,
        openings: "",
        wrong: `At step ${run.wrong_step}. Blue: what the network prefers; green: the right move.`,
      };
      const found = draw[what]();
      const marks = { games: run.games.length, openings: run.openings ? run.openings.moves.length : 0, wrong: run.wrong.length }[what];
      const panel = dom.make("section", { class: "panel full", id: `panel-${what}`, "data-marks": marks });
      if (found && notes[what]) panel.append(dom.make("p", { class: "note" }, notes[what]));
      panel.append(...(found ? [found].flat().filter(Boolean) : [dom.make("p", { class: "empty" }, run[`no_${what}`])]));
      place.replaceChildren(...(report.runs.length > 1 ? [chooser(index)] : []), panel);
    };
    const chooser = (chosen) => dom.make("div", { class: "chooser" }, report.runs.map((run, index) => dom.make("button", { type: "button", "aria-pressed": String(index === chosen), onclick: () => show(index) }, page.dot(index), run.name)));
    const chosen = page.state[what];
    const first = report.runs.findIndex((run) => (what === "openings" ? run.openings : run[what].length));
    show(chosen !== undefined && chosen < report.runs.length ? chosen : Math.max(0, first));
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
