// Openings as a tree: how often each move was played, and how well the first player did after it.
"use strict";
const tree = {
  draw(run) {
    const root = run.openings;
    const head = dom.make("p", { class: "note" }, `The newest ${text.counted(root.games, "game")} from the usual start; ${boards.side(run.game, true)} scored ${text.percent(root.score)}. The bar is the first player's score.`);
    return dom.make("div", { class: "tree" }, head, root.moves.map((node) => tree.branch(node, root.games, 1)));
  },

  branch(node, total, ply) {
    const bar = dom.make("i", {});
    bar.style.width = `${(100 * node.score).toFixed(1)}%`;
    const number = ply % 2 === 1 ? `${(ply + 1) / 2}. ` : `${ply / 2}... `;
    const row = [
      dom.make("span", { class: "move" }, number, dom.make("b", {}, node.move)),
      dom.make("span", { class: "games" }, `${node.games.toLocaleString("en-US")} (${text.percent(node.games / total)})`),
      dom.make("span", { class: "track" }, bar),
      dom.make("span", { class: "score" }, text.percent(node.score)),
    ];
    if (!node.moves.length) return dom.make("div", { class: "leaf" }, row);
    return dom.make("details", {}, dom.make("summary", {}, row), dom.make("div", { class: "branches" }, node.moves.map((child) => tree.branch(child, total, ply + 1))));
  },
};
