// Visits, values and proofs on their way from a leaf to the root.
#pragma once

#include <cstdint>

#include "search/node_store.hpp"

namespace alphazero {

// So many more walks (fewer where negative) wait below the leaf and every node above it.
void add_waiting(NodeStore& store, std::uint32_t leaf, std::int32_t count);
// A walk ended at the leaf with this value (W - L) and chance of a draw, for the leaf's mover.
void finish(NodeStore& store, std::uint32_t leaf, double value, double draw);
// Makes the node a new one: the visits it had, all draws, are taken off every node above it.
void take_back_visits(NodeStore& store, std::uint32_t id);
// What the proof of this node proves of the nodes above it.
void prove_parents(NodeStore& store, std::uint32_t child);

}  // namespace alphazero
