// One bind function a file; module.cpp calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace alphazero::bindings {

void bind_chess(nanobind::module_& module);          // bind_chess.cpp: ChessPosition, perft, SAN
void bind_games(nanobind::module_& module);          // bind_games.cpp: lines of play, game specs, encoding
void bind_foreign(nanobind::module_& module);        // bind_foreign.cpp: rules that are Python objects
void bind_foreign_sizes();                           // bind_games.cpp: of the game whose rules are in use
void bind_pgn(nanobind::module_& module);            // bind_pgn.cpp: PGN text to columns
void bind_lc0(nanobind::module_& module);            // bind_lc0.cpp: lc0's training records
void bind_loader(nanobind::module_& module);         // bind_loader.cpp: sampled plies to packed batches
void bind_sample_groups(nanobind::module_& module);  // bind_sample_groups.cpp: equal positions as one
void bind_search(nanobind::module_& module);         // bind_search.cpp: one position, one whole game
void bind_search_pools(
    nanobind::module_& module);                // bind_search_pools.cpp: positions side by side, self-play
void bind_solver(nanobind::module_& module);   // bind_solver.cpp: exact Connect Four
void bind_network(nanobind::module_& module);  // bind_network.cpp: bf16 kernels of training

}  // namespace alphazero::bindings
