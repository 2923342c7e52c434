// Boards as SVG: chess with the pieces that python-chess draws, stones for other games; text where rules draw it.
"use strict";
const boards = {
  unit: 45, // python-chess draws its pieces on squares of this size
  preferred: "#1d4ed8", // the arrow of a policy's move
  pieces: { k: "king", q: "queen", r: "rook", b: "bishop", n: "knight", p: "pawn" },
  sizes: { chess: [8, 8], connect4: [6, 7], othello: [8, 8], tictactoe: [3, 3] },

  // position: cells, size (of a game that is not in sizes), move ([text, origin, target] that led here), policy ([text, origin, target, share]), target.
  // rows: see asText. isFlipped: seen from the second player's side.
  draw(game, position, rows = 0, isFlipped = false) {
    if (position.drawing !== undefined) return boards.asText(position.drawing, rows);
    const [height, width] = position.size || boards.sizes[game];
    const u = boards.unit;
    const margin = game === "connect4" || position.size ? 3 : 16;
    const board = dom.svg("svg", {
      class: `board board-${position.size ? "drawn" : game}`,
      viewBox: `${-margin} -3 ${width * u + margin + 3} ${height * u + (position.size ? 6 : 19)}`,
      role: "img",
      "aria-label": `board: ${position.cells}`,
    });
    const turned = (square) => (isFlipped ? height * width - 1 - square : square);
    const at = (square) => [(turned(square) % width) * u, Math.floor(turned(square) / width) * u];
    const isChess = game === "chess";
    if (!isChess) {
      const fill = game === "connect4" ? "#3b5fa8" : game === "othello" ? "#3f8f6b" : "#e8edf3";
      board.append(dom.svg("rect", { x: -3, y: -3, width: width * u + 6, height: height * u + 6, rx: 8, fill }));
    }
    for (let square = 0; square < height * width; square += 1) {
      const [x, y] = at(square);
      const isDark = (Math.floor(square / width) + (square % width)) % 2 === 1;
      if (isChess) board.append(dom.svg("rect", { x, y, width: u, height: u, class: isDark ? "dark-square" : "light-square" }));
      else if (game !== "connect4") {
        board.append(dom.svg("rect", { x: x + 0.5, y: y + 0.5, width: u - 1, height: u - 1, fill: "none", stroke: game === "othello" ? "#2f6f53" : "#94a3b8" }));
      }
    }
    const played = position.move ? position.move.slice(1).filter((square) => square >= 0) : [];
    played.forEach((square) => {
      const [x, y] = at(square);
      if (isChess) board.append(dom.svg("rect", { x, y, width: u, height: u, fill: "#facc15", opacity: 0.45 }));
    });
    [...position.cells].forEach((letter, square) => boards.piece(board, game, letter, at(square), played.includes(square)));
    if (!position.size) boards.coordinates(board, height, width, game, isFlipped);
    const side = position.first_to_move;
    if (position.target) boards.arrow(board, game, at, position.target, "#16a34a", 1, side);
    (position.policy || []).slice().reverse().forEach((move) => boards.arrow(board, game, at, move, boards.preferred, move[3], side));
    return board;
  },

  // As the rules draw it, smaller where it is wide. rows: of the highest one of a game, so that nothing jumps.
  asText(drawing, rows = 0) {
    const lines = drawing.split("\n");
    const place = dom.make("pre", { class: "board drawing", tabindex: 0, role: "img", "aria-label": `board: ${drawing}` }, drawing);
    place.style.setProperty("--columns", String(Math.max(1, ...lines.map((line) => line.length))));
    place.style.setProperty("--rows", String(Math.max(rows, lines.length)));
    return place;
  },

  piece(board, game, letter, [x, y], isLast) {
    const u = boards.unit;
    if (game === "chess") {
      const kind = boards.pieces[letter.toLowerCase()];
      if (!kind) return;
      const side = letter === letter.toLowerCase() ? "black" : "white";
      board.append(dom.svg("use", { href: `#${side}-${kind}`, x, y, width: u, height: u }));
      return;
    }
    const isStone = letter === "x" || letter === "o";
    if (!isStone && game !== "connect4") {
      const style = { x: x + u / 2, y: y + 0.68 * u, "font-size": 24, "text-anchor": "middle", fill: "#0f172a", "font-weight": isLast ? 800 : 400 };
      if (letter !== ".") board.append(dom.svg("text", { class: "sign", ...style }, letter));
      return;
    }
    const colours = game === "othello" ? { x: "#111827", o: "#f8fafc" } : { x: "#dc4b4b", o: "#f5c542" };
    board.append(
      dom.svg("circle", {
        cx: x + u / 2,
        cy: y + u / 2,
        r: 0.4 * u,
        fill: colours[letter] || "#dbe4f0",
        stroke: isLast ? "#111827" : "none",
        "stroke-width": 2.5,
        class: isStone ? "stone" : "hole",
      }),
    );
  },

  // From square to square; where a stone is put, a ring with the share in it.
  arrow(board, game, at, [label, origin, target, given], colour, share, isFirst) {
    const u = boards.unit;
    if (target < 0 || share < 0.01) return;
    const [x2, y2] = at(target).map((place) => place + u / 2);
    if (origin < 0) {
      const isTarget = colour !== boards.preferred;
      const group = dom.svg("g", { class: "arrow" });
      group.append(
        dom.svg("circle", {
          cx: x2, cy: y2, r: (isTarget ? 0.46 : 0.36) * u,
          fill: isTarget ? "none" : "#ffffff", "fill-opacity": 0.55 + 0.4 * share,
          stroke: colour, "stroke-width": isTarget ? 3 : 1.5 + 4 * share,
        }),
      );
      if (!isTarget) {
        group.append(dom.svg("text", { x: x2, y: y2 + 4, "text-anchor": "middle", "font-size": 12, "font-weight": 600, fill: "#0f172a" }, text.percent(given)));
      }
      board.append(group);
      return;
    }
    const [x1, y1] = at(origin).map((place) => place + u / 2);
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    const half = colour === boards.preferred ? 1.5 + 4 * Math.sqrt(share) : 2.5;
    const head = 3 * half + 3;
    const [bx, by] = [x2 - dx * head, y2 - dy * head];
    const side = half + 4;
    const points = [
      [x1 - dy * half, y1 + dx * half], [bx - dy * half, by + dx * half], [bx - dy * side, by + dx * side], [x2, y2],
      [bx + dy * side, by - dx * side], [bx + dy * half, by - dx * half], [x1 + dy * half, y1 - dx * half],
    ];
    board.append(
      dom.svg("polygon", { class: "arrow", points: points.map((point) => point.map((one) => one.toFixed(1)).join(",")).join(" "), fill: colour, opacity: 0.4 + 0.5 * share },
        dom.svg("title", {}, `${label} ${text.percent(given)}`)),
    );
  },

  coordinates(board, height, width, game, isFlipped) {
    const u = boards.unit;
    const style = { class: "coordinate", "font-size": 11, "text-anchor": "middle" };
    for (let file = 0; file < width; file += 1) {
      const column = isFlipped ? width - 1 - file : file;
      const label = game === "connect4" ? String(column + 1) : String.fromCharCode(97 + column);
      board.append(dom.svg("text", { x: (file + 0.5) * u, y: height * u + 12, ...style }, label));
    }
    if (game === "connect4") return;
    for (let row = 0; row < height; row += 1) {
      board.append(dom.svg("text", { x: -9, y: (row + 0.5) * u + 4, ...style }, String(isFlipped ? row + 1 : height - row)));
    }
  },

  sides: { chess: ["White", "Black"], othello: ["Black", "White"], connect4: ["Red", "Yellow"], tictactoe: ["Red", "Yellow"] },

  side(game, isFirst) {
    return (boards.sides[game] || ["the first player", "the second player"])[isFirst ? 0 : 1];
  },
};
