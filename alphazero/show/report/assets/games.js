// A game to step through: board, moves, the value as a curve, what was thought of each move; positions gone wrong.
"use strict";
const games = {
  // The newest game of which something is known of most plies: some have random openings and little else.
  firstToShow(run) {
    const known = run.games.map((game) => game.frames.filter((frame) => frame.policy && frame.policy.length).length);
    const enough = known.findIndex((count) => count >= 10);
    return enough >= 0 ? enough : known.indexOf(Math.max(...known));
  },

  // state: { game, ply } is kept by the caller, so that a page that is refreshed stays where it was.
  viewer(run, state) {
    if (state.game === null) state.game = games.firstToShow(run);
    const chosen = () => run.games[Math.min(state.game, run.games.length - 1)];
    const root = dom.make("div", { class: "viewer", tabindex: 0, "data-viewer": true, role: "group", "aria-label": "a game: arrow keys step through it" });
    const boardPlace = dom.make("div", { class: "board-place" });
    const said = dom.make("div", { class: "said" });
    const moves = dom.make("ol", { class: "moves" });
    const curvePlace = dom.make("div", { class: "value-curve" });
    const slider = dom.make("input", { type: "range", min: 0, step: 1, "aria-label": "ply", oninput: () => go(Number(slider.value)) });
    const caption = dom.make("div", { class: "caption" });
    let timer = null;

    const last = () => chosen().frames.length - 1;
    const go = (ply) => {
      state.ply = Math.max(0, Math.min(last(), ply));
      show();
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    const play = dom.make("button", { type: "button", onclick: () => {
      if (timer) return stop();
      if (state.ply === last()) go(0);
      play.textContent = "Stop";
      timer = setInterval(() => (state.ply < last() && root.isConnected ? go(state.ply + 1) : stop()), 900);
    } }, "Play");
    const button = (label, title, step) => dom.make("button", { type: "button", title, "aria-label": title, onclick: () => go(step()) }, label);
    const controls = dom.make(
      "div",
      { class: "controls" },
      button("|\u25c0", "first position", () => 0),
      button("\u25c0", "back", () => state.ply - 1),
      button("\u25b6", "forward", () => state.ply + 1),
      button("\u25b6|", "last position", () => last()),
      play,
      slider,
    );
    const select = dom.make("select", { "aria-label": "game", onchange: () => {
      stop();
      [state.game, state.ply] = [Number(select.value), null];
      fill();
    } });
    run.games.forEach((game, index) => select.append(dom.make("option", { value: index }, [game.title, game.result, text.counted(game.frames.length - 1, "ply", "plies")].join(" \u00b7 "))));

    const fill = () => {
      select.value = String(Math.min(state.game, run.games.length - 1));
      slider.max = String(last());
      moves.replaceChildren(...games.moveList(chosen(), go));
      show();
    };
    const show = () => {
      const game = chosen();
      // A game is shown from where something is known of it: random openings are not.
      if (state.ply === null) state.ply = Math.max(0, game.frames.findIndex((frame) => frame.policy && frame.policy.length));
      state.ply = Math.min(state.ply, last());
      const frame = game.frames[state.ply];
      const rows = Math.max(...game.frames.map((one) => (one.drawing || "").split("\n").length));
      boardPlace.replaceChildren(boards.draw(run.game, frame, rows));
      slider.value = String(state.ply);
      said.replaceChildren(...games.thoughts(run, game, frame));
      curvePlace.replaceChildren(games.valueCurve(run, game, state.ply, go));
      caption.replaceChildren(...games.caption(run, game, state.ply));
      root.dataset.ply = String(state.ply);
      moves.querySelectorAll("button").forEach((one) => {
        const isHere = Number(one.dataset.ply) === state.ply;
        one.classList.toggle("here", isHere);
        if (isHere) moves.scrollTop = one.offsetTop - moves.offsetTop - moves.clientHeight / 2;
      });
      if (state.ply === 0) moves.scrollTop = 0;
    };
    // The page asks this: whether a key is the viewer's. Home and End are the page's where the viewer has no focus.
    root.takesKey = (key, hasFocus) => {
      const steps = { ArrowLeft: state.ply - 1, ArrowRight: state.ply + 1, ...(hasFocus ? { Home: 0, End: last() } : {}) };
      if (!(key in steps)) return false;
      go(steps[key]);
      return true;
    };
    root.append(
      dom.make("div", { class: "board-side" }, boardPlace, controls),
      dom.make("div", { class: "game-side" }, select, caption, said, curvePlace, moves),
    );
    fill();
    return root;
  },

  moveList(game, go) {
    return game.frames.slice(1).map((frame, index) => {
      const isFirst = game.frames[index].first_to_move;
      // Where players need not take turns, plies are counted instead of moves.
      const number = game.frames[index].drawing !== undefined ? `${index + 1}. ` : isFirst || index === 0 ? `${Math.floor(index / 2) + 1}.${isFirst ? "" : ".."} ` : "";
      return dom.make("li", {}, dom.make("span", {}, number), dom.make("button", { type: "button", "data-ply": index + 1, onclick: () => go(index + 1) }, frame.move[0]));
    });
  },

  caption(run, game, ply) {
    const labels = ["event", "date", "end"].map((name) => game.labels[name]).filter(Boolean);
    const place = ply === 0 ? (game.starts_elsewhere ? "A start of its own" : "Start") : `After ply ${ply}: ${game.frames[ply].move[0]}`;
    return [dom.make("b", {}, place), labels.length ? dom.make("span", { class: "unit" }, labels.join(", ")) : null].filter(Boolean);
  },

  // Value and first moves of a position; what happened next is marked.
  thoughts(run, game, frame) {
    const index = game.frames.indexOf(frame);
    const who = run.games_from === "search" ? "search" : "network";
    if (frame.value === undefined || frame.value === null) {
      const isLast = index === game.frames.length - 1;
      return [dom.make("p", { class: "unit" }, isLast ? `The game ended ${game.result}.` : run.games_from === "search" ? "No search was made here: the move was random, to vary the openings." : "The network was not asked here.")];
    }
    const next = game.frames[index + 1] ? game.frames[index + 1].move[0] : "";
    const score = 50 + 50 * frame.value;
    const meter = dom.make("div", { class: "meter", title: "expected score of the first player" }, dom.make("i", {}));
    meter.firstChild.style.width = `${score.toFixed(1)}%`;
    return [
      dom.make("p", {}, `The ${who} expects `, dom.make("b", {}, `${score.toFixed(0)}%`), ` for ${boards.side(run.game, true)} (value ${text.signed(frame.value)}, drawn ${text.percent(frame.draw)}); ${boards.side(run.game, frame.first_to_move)} to move.`),
      meter,
      dom.make("table", { class: "policy" }, (frame.policy || []).map(([label, , , share]) => {
        const bar = dom.make("i", {});
        bar.style.width = `${(100 * share).toFixed(1)}%`;
        return dom.make("tr", { class: label === next ? "next" : null }, dom.make("td", {}, label), dom.make("td", {}, dom.make("div", { class: "track" }, bar)), dom.make("td", {}, text.percent(share)), dom.make("td", {}, label === next ? "played" : ""));
      })),
    ];
  },

  // The first player's value over the game; a click goes there.
  valueCurve(run, game, ply, go) {
    const [width, height] = [420, 110];
    const last = Math.max(1, game.frames.length - 1);
    const x = (index) => (index / last) * (width - 8) + 4;
    const y = (value) => ((1 - value) / 2) * (height - 12) + 6;
    const known = game.frames.map((frame, index) => [index, frame.value]).filter(([, value]) => value !== undefined && value !== null);
    const chart = dom.svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": "value over the game", onclick: (event) => {
      const box = chart.getBoundingClientRect();
      go(Math.round(((event.clientX - box.left) / box.width) * last));
    } });
    chart.append(dom.svg("line", { class: "even", x1: 0, x2: width, y1: y(0), y2: y(0), "stroke-dasharray": "4 4" }));
    if (known.length) {
      const points = known.map(([index, value]) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
      const base = y(0).toFixed(1);
      chart.append(dom.svg("polygon", { points: `${x(known[0][0])},${base} ${points.join(" ")} ${x(known[known.length - 1][0])},${base}`, class: "value", opacity: 0.2 }));
      if (known.length === 1) chart.append(dom.svg("circle", { cx: x(known[0][0]), cy: y(known[0][1]), r: 4, class: "value" }));
      chart.append(dom.svg("polyline", { points: points.join(" "), class: "value line", "stroke-width": 2, "vector-effect": "non-scaling-stroke" }));
    }
    chart.append(dom.svg("line", { class: "cursor", x1: x(ply), x2: x(ply), y1: 0, y2: height, "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }));
    return dom.make("div", {}, dom.make("div", { class: "unit" }, `value for ${boards.side(run.game, true)}: top wins, bottom loses`), chart);
  },

  // Boards of the positions with the largest errors, of the policy and of the value.
  wrong(run) {
    const titles = { policy: "The move it did not see coming", value: "The result it did not expect" };
    return Object.keys(titles).map((by) => {
      const chosen = run.wrong.filter((one) => one.by === by);
      if (!chosen.length) return null;
      return dom.make("div", {}, dom.make("h4", {}, titles[by]), dom.make("div", { class: "wrong" }, chosen.map((one) => games.wrongCard(run, one))));
    });
  },

  wrongCard(run, one) {
    const first = one.policy[0];
    const score = (value) => (50 + 50 * value).toFixed(0) + "%";
    const isExact = one.truth === "exact";
    const words =
      one.by === "policy"
        ? [dom.make("b", { class: "right" }, one.target[0]), isExact ? " keeps the result; the network gives it " : " was played; the network gave it ", dom.make("b", {}, text.percent(one.target[3])), first ? ` and preferred ${first[0]} (${text.percent(first[3])}).` : "."]
        : ["It expected ", dom.make("b", {}, score(one.value)), ` for ${boards.side(run.game, one.first_to_move)}, to move; `, isExact ? "the truth is " : "the game scored ", dom.make("b", {}, score(one.result)), "."];
    const position = { ...one, target: one.by === "policy" ? one.target : null };
    return dom.make("figure", {}, boards.draw(run.game, position), dom.make("figcaption", {}, words, dom.make("code", { title: "the position" }, one.position), dom.copier(run.game === "chess" ? "Copy FEN" : "Copy position", one.position)));
  },
};
