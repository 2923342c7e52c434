// A game against the network, or of two networks: the page keeps the moves, its server knows the rules.
"use strict";
const play = {
  about: JSON.parse(document.getElementById("data").textContent),
  game: { start: null, moves: [], resigned: "" },
  view: null, // the position as the server described it
  found: null, // what a search found here, where the person asked
  chosen: -1, // the square that was picked up
  cursor: -1, // the square that the arrow keys are on
  last: null, // what the network found for its last move
  fault: "",
  thinking: null, // AbortController of the search under way
  flipped: false,
  paused: false,

  start() {
    const token = location.hash.slice(1) || sessionStorage.getItem("token") || "";
    sessionStorage.setItem("token", token);
    history.replaceState(null, "", "/"); // the token stays with this tab
    play.token = token;
    play.game.start = play.about.start;
    play.game.moves = play.about.moves.slice();
    play.person = play.about.side;
    play.effort = { ...play.about.effort };
    play.flipped = play.person === "second";
    play.show();
  },

  async ask(kind, more = {}, signal = undefined) {
    const answer = await fetch(`/${kind}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Alphazero-Token": play.token },
      body: JSON.stringify({ start: play.game.start, moves: play.game.moves, ...more }),
      signal,
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error);
    return body;
  },

  // Ask for the position of the game and draw it. What the server refuses leaves the game as it was.
  async show(game = play.game) {
    const before = play.game;
    if (play.thinking) play.thinking.abort();
    play.game = game;
    play.found = null;
    play.chosen = -1;
    try {
      play.view = await play.ask("position");
      if (play.game !== game) return; // another move came meanwhile
      if (play.view.pushed) game.moves[game.moves.length - 1] = play.view.pushed;
      if (!play.view.flips) play.flipped = false;
      play.fault = "";
    } catch (error) {
      if (play.game !== game) return;
      play.game = before;
      play.fault = play.reason(error);
    }
    play.draw();
    if (!play.fault && play.networkOf() >= 0 && !play.paused) await play.answer();
  },

  reason(error) {
    return error instanceof TypeError ? "the server does not answer: alphazero play has ended, or the tunnel to it" : error.message;
  },

  push(move) {
    return play.show({ ...play.game, moves: [...play.game.moves, move] });
  },

  isOver() {
    return Boolean(play.view.result || play.game.resigned);
  },

  // The network whose turn it is; -1: the person's, or the game is over.
  networkOf() {
    if (!play.view || play.isOver() || play.person === play.view.turn) return -1;
    return play.person === "watch" && play.view.turn === "second" ? play.about.networks.length - 1 : 0;
  },

  // Search this position with a network; null where the search was given up.
  async search(network) {
    const mine = new AbortController();
    play.thinking = mine;
    play.draw();
    try {
      return await play.ask("search", { network, ...play.effort }, mine.signal);
    } catch (error) {
      if (!mine.signal.aborted) play.fault = play.reason(error);
      return null;
    } finally {
      if (play.thinking === mine) play.thinking = null;
    }
  },

  async answer() {
    const game = play.game;
    const found = await play.search(play.networkOf());
    if (play.game !== game) return;
    if (!found) return play.draw();
    play.last = found;
    await play.push(found.move);
  },

  async hint() {
    const game = play.game;
    const found = await play.search(0);
    if (play.game !== game) return;
    play.found = found;
    play.draw();
  },

  // To the person's turn before; in a game of networks one move.
  undo() {
    const moves = play.game.moves.slice();
    if (play.game.resigned) return play.show({ ...play.game, resigned: "" });
    if (play.person === "watch") {
      play.paused = true;
      moves.pop();
    } else {
      const before = play.view.turns.slice(0, moves.length).lastIndexOf(play.person);
      if (before < 0) return play.say("undo: there is no move of yours to take back");
      moves.length = before;
    }
    return play.show({ ...play.game, moves, resigned: "" });
  },

  say(text) {
    play.fault = text;
    play.draw();
  },

  begin(side, start = play.game.start) {
    const drawn = side === "random" ? (Math.random() < 0.5 ? "first" : "second") : side;
    play.person = drawn;
    play.flipped = drawn === "second";
    play.paused = false;
    play.last = null;
    return play.show({ start, moves: [], resigned: "" });
  },

  resign() {
    play.show({ ...play.game, resigned: play.view.turn === "first" ? "0-1" : "1-0" });
  },

  names() {
    const network = (number) => `alphazero ${play.about.networks[Math.min(number, play.about.networks.length - 1)]}`;
    if (play.person === "watch") return [network(0), network(1)];
    return play.person === "first" ? ["human", network(0)] : [network(0), "human"];
  },

  async pgn() {
    try {
      const { pgn } = await play.ask("pgn", { players: play.names(), resigned: play.game.resigned });
      const link = dom.make("a", { download: "game.pgn", href: `data:application/x-chess-pgn;charset=utf-8,${encodeURIComponent(pgn)}` });
      link.click();
    } catch (error) {
      play.say(play.reason(error));
    }
  },

  // --- the board ---

  size() {
    return play.view.size || boards.sizes[play.about.game];
  },

  mayMove() {
    return !play.isOver() && play.networkOf() < 0;
  },

  // Legal moves of a piece, or of a stone on a square; a whole column is one square in Connect Four.
  movesTo(square) {
    const column = (one) => one % play.size()[1];
    return play.view.legal.filter(([, , origin, target]) =>
      origin >= 0 ? origin === play.chosen && target === square : play.about.game === "connect4" ? column(target) === column(square) : target === square);
  },

  isOrigin(square) {
    return play.view.legal.some(([, , origin]) => origin >= 0 && origin === square);
  },

  // A square is clicked, or a piece is dropped on it.
  take(square) {
    if (!play.mayMove() || square < 0) return;
    const moves = play.movesTo(square);
    if (moves.length === 1) play.push(moves[0][0]);
    else if (moves.length) play.promote(moves);
    else {
      play.chosen = play.isOrigin(square) && square !== play.chosen ? square : -1;
      play.draw();
    }
  },

  // Several moves lead there; in chess the queen comes first.
  promote(moves) {
    const dialog = dom.make("dialog", { class: "promotion", "aria-label": "choose a move" },
      moves.reverse().map(([move, shown]) => dom.make("button", { type: "button", onclick: () => { dialog.close(); play.push(move); } }, shown)));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  },

  squareAt(board, event) {
    const matrix = board.getScreenCTM();
    if (!matrix) return -1;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const [height, width] = play.size();
    const [column, row] = [Math.floor(point.x / boards.unit), Math.floor(point.y / boards.unit)];
    if (column < 0 || row < 0 || column >= width || row >= height) return -1;
    const square = row * width + column;
    return play.flipped ? height * width - 1 - square : square;
  },

  board() {
    const position = { ...play.view, policy: play.found ? play.found.policy : [] };
    const board = boards.draw(play.about.game, position, 0, play.flipped);
    if (play.view.drawing !== undefined) return board;
    board.setAttribute("tabindex", "0");
    board.classList.add("playing");
    const [height, width] = play.size();
    const place = (square) => {
      const shown = play.flipped ? height * width - 1 - square : square;
      return { x: (shown % width) * boards.unit, y: Math.floor(shown / width) * boards.unit };
    };
    const mark = (square, kind) => board.append(dom.svg("rect", { ...place(square), width: boards.unit, height: boards.unit, class: kind }));
    const dot = (square) => {
      const { x, y } = place(square);
      board.append(dom.svg("circle", { cx: x + boards.unit / 2, cy: y + boards.unit / 2, r: 7, class: "legal-target" }));
    };
    if (play.chosen >= 0) mark(play.chosen, "chosen-square");
    if (play.cursor >= 0) mark(play.cursor, "cursor-square");
    if (play.mayMove()) {
      const targets = play.view.legal.filter(([, , origin, target]) => target >= 0 && (origin < 0 || origin === play.chosen));
      new Set(targets.map(([, , , target]) => target)).forEach(dot);
    }
    play.handle(board, place);
    return board;
  },

  // Click, drag and keys. A piece follows the pointer; dropped on its own square it stays picked up.
  handle(board, place) {
    let from = -1;
    let ghost = null;
    board.addEventListener("pointerdown", (event) => {
      const square = play.squareAt(board, event);
      if (!play.mayMove() || !play.isOrigin(square) || play.movesTo(square).length) return;
      from = square;
      const { x, y } = place(square);
      ghost = [...board.querySelectorAll("use")].find((one) => Number(one.getAttribute("x")) === x && Number(one.getAttribute("y")) === y);
      board.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    board.addEventListener("pointermove", (event) => {
      if (from < 0 || !ghost) return;
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(board.getScreenCTM().inverse());
      ghost.setAttribute("x", point.x - boards.unit / 2);
      ghost.setAttribute("y", point.y - boards.unit / 2);
      board.append(ghost); // above the others
    });
    board.addEventListener("pointerup", (event) => {
      const square = play.squareAt(board, event);
      if (from < 0 || square === from) play.take(square);
      else {
        play.chosen = from;
        if (play.movesTo(square).length) play.take(square);
        else {
          play.chosen = -1;
          play.draw();
        }
      }
      from = -1;
    });
    board.addEventListener("keydown", (event) => {
      const [height, width] = play.size();
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      const sign = play.flipped ? -1 : 1;
      if (steps[event.key]) {
        const at = play.cursor < 0 ? (play.flipped ? width - 1 : (height - 1) * width) : play.cursor;
        const [row, column] = [Math.floor(at / width), at % width];
        const clamp = (value, most) => Math.min(most - 1, Math.max(0, value));
        const [down, right] = play.cursor < 0 ? [0, 0] : steps[event.key];
        play.cursor = clamp(row + sign * down, height) * width + clamp(column + sign * right, width);
      } else if (event.key === "Enter" || event.key === " ") {
        play.take(play.cursor);
      } else if (event.key === "Escape") {
        play.chosen = play.cursor = -1;
      } else return;
      event.preventDefault();
      play.draw();
    });
  },

  // --- what stands beside it ---

  status() {
    const view = play.view;
    if (play.game.resigned) return `The game is over: ${play.game.resigned} (resigned).`;
    if (view.result) return `The game is over: ${view.result} (${view.why}).`;
    const side = boards.side(play.about.game, view.turn === "first");
    if (play.thinking) return `${side}: the network is searching...`;
    return play.networkOf() < 0 ? `${side} to move: your turn.` : `${side} to move.`;
  },

  chances() {
    const found = play.found || play.last;
    if (!found) return null;
    const [win, draw, loss] = found.wdl;
    const names = [true, false].map((isFirst) => boards.side(play.about.game, isFirst));
    const said = `${names[0]} wins ${text.percent(win)}, draw ${text.percent(draw)}, ${names[1]} wins ${text.percent(loss)}`;
    return dom.make("div", { class: "chances" },
      dom.make("div", { class: "meter", role: "img", "aria-label": said }, dom.make("i", { style: `width: ${100 * (win + draw / 2)}%` })),
      dom.make("p", { class: "unit" }, `${said}${found.mate ? `, mate in ${Math.abs(found.mate)}` : ""}; ${text.counted(found.nodes, "visit")} in ${found.seconds.toFixed(1)} s`),
      play.found ? dom.make("ol", { class: "lines" }, found.lines.map((line) => dom.make("li", {}, line))) : null);
  },

  moves() {
    const list = dom.make("ol", { class: "moves", tabindex: 0, "aria-label": "moves" });
    const isPaired = play.about.game === "chess";
    const offset = isPaired && play.view.turns[0] === "second" ? 1 : 0;
    play.view.shown.forEach((move, ply) => {
      const number = isPaired ? (ply + offset) % 2 === 0 || ply === 0 ? `${Math.floor((ply + offset) / 2) + 1}${(ply + offset) % 2 ? "..." : "."} ` : "" : `${ply + 1}. `;
      list.append(dom.make("li", {}, number ? dom.make("span", {}, number) : null, move));
    });
    return list;
  },

  // Moves by their names: those without a square, as a pass, and all of them where the rules draw no board.
  buttons() {
    if (!play.mayMove()) return null;
    const named = play.view.legal.filter(([, , , target]) => target < 0);
    return named.length ? dom.make("div", { class: "chooser" }, named.map(([move, shown]) => dom.make("button", { type: "button", onclick: () => play.push(move) }, shown))) : null;
  },

  controls() {
    const button = (label, act, disabled = false, title = null) => dom.make("button", { type: "button", onclick: act, disabled, title }, label);
    const isChess = play.about.game === "chess";
    const sides = [["first", boards.side(play.about.game, true)], ["second", boards.side(play.about.game, false)], ["random", "Random"], ["watch", play.about.networks.length > 1 ? "Watch both" : "Watch"]];
    const choose = dom.make("select", { "aria-label": "your side in a new game", class: "side" },
      sides.map(([value, label]) => dom.make("option", { value, selected: value === play.person }, label)));
    return dom.make("div", { class: "buttons" },
      dom.make("div", {}, button("New game", () => play.begin(choose.value, play.about.start)), choose),
      dom.make("div", {},
        play.networkOf() >= 0 // paused, or its search could not be done
          ? button("Move", play.answer, Boolean(play.thinking))
          : button("Hint", play.hint, play.isOver() || Boolean(play.thinking)),
        button("Undo", play.undo, !play.game.moves.length && !play.game.resigned),
        button("Flip", () => { play.flipped = !play.flipped; play.draw(); }, !play.view.flips),
        play.person === "watch"
          ? button(play.paused ? "Go on" : "Pause", play.pause, play.isOver())
          : button("Resign", play.resign, !play.mayMove() || !play.game.moves.length),
        isChess ? button("PGN", play.pgn, !play.game.moves.length) : null));
  },

  pause() {
    play.paused = !play.paused;
    if (!play.paused) return play.show({ ...play.game });
    if (play.thinking) play.thinking.abort();
    return play.draw();
  },

  strength() {
    const unit = play.effort.seconds === undefined ? "simulations" : "seconds";
    const number = dom.make("input", { type: "number", min: unit === "seconds" ? 0.01 : 1, step: unit === "seconds" ? "any" : 1, value: play.effort[unit], "aria-label": "strength", onchange: (event) => {
      if (event.target.value && event.target.checkValidity()) play.effort = { [unit]: Number(event.target.value) };
    } });
    const units = dom.make("select", { "aria-label": "unit of the strength", onchange: (event) => {
      play.effort = event.target.value === "seconds" ? { seconds: 1 } : { simulations: 400 };
      play.draw();
    } }, ["simulations", "seconds"].map((one) => dom.make("option", { value: one, selected: one === unit }, one)));
    return dom.make("div", { class: "field" }, dom.make("span", { class: "unit" }, "Strength, a move"), number, units);
  },

  // A line of text with what Enter does.
  field(label, name, value, act) {
    const input = dom.make("input", { type: "text", value, spellcheck: "false", autocomplete: "off", "data-field": name, "aria-label": label, onkeydown: (event) => {
      if (event.key === "Enter" && input.value.trim()) act(input.value.trim());
    } });
    return dom.make("div", { class: "field" }, dom.make("span", { class: "unit" }, label), input);
  },

  draw() {
    if (!play.view) {
      document.querySelector("main").replaceChildren(dom.make("p", { class: "verdict lost" }, play.fault));
      document.body.dataset.drawn = "yes";
      return;
    }
    const focused = document.activeElement;
    const field = focused && focused.dataset ? focused.dataset.field : "";
    const hadBoard = focused && focused.matches && focused.matches(".playing");
    const main = dom.make("main", {}, dom.make("section", { class: "card viewer", "aria-label": "the game" },
      dom.make("div", { class: "board-place" }, play.board()),
      dom.make("div", { class: "game-side" },
        dom.make("p", { class: "verdict", role: "status" }, play.status()),
        play.fault ? dom.make("p", { class: "lost", role: "alert" }, play.fault) : null,
        play.chances(), play.buttons(), play.controls(),
        play.field("Your move, as text", "move", "", (move) => (play.mayMove() ? play.push(move) : play.say("it is not your turn"))),
        play.moves(), play.strength(),
        play.field("Position: Enter plays from it", "position", play.view.fen, (start) => play.show({ start, moves: [], resigned: "" })))));
    document.querySelector("main").replaceWith(main);
    document.querySelector("header").replaceChildren(dom.make("div", { class: "title" }, dom.make("h1", {}, play.names().join(" - "))));
    const again = field ? main.querySelector(`[data-field="${field}"]`) : hadBoard ? main.querySelector(".playing") : null;
    if (again) again.focus();
    document.body.dataset.drawn = "yes";
    document.body.dataset.moves = String(play.game.moves.length);
    document.body.dataset.busy = play.thinking ? "yes" : "no";
  },
};
play.start();
