// Samples whose positions are equal, and batches in which such samples have become one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch_encoder.hpp"

namespace alphazero {

// Group g is member[offset[g]] ... member[offset[g + 1] - 1], ascending; groups ascend by their first
// members.
struct SampleGroups {
  std::vector<std::uint32_t> member;  // [samples]
  std::vector<std::uint32_t> offset;  // [groups + 1]
};

// Throws std::length_error from 2^32 - 1 samples on.
SampleGroups group_samples(std::span<const std::uint64_t> keys);

// One sample for each group of a batch, the samples group_offset[g] ... group_offset[g + 1] - 1 of it: the
// planes of the first, the means of the targets. A sample with other legal moves than the first of its group
// only has an equal key by chance, and is left out. Throws std::out_of_range for groups that do not divide
// the batch into parts of at least one sample.
EncodedBatch merge_groups(const EncodedBatch& batch, std::span<const std::int64_t> group_offset);

// Which of the positions of games are drawn: u8 [sum of lengths], 1 for `most` of each game's, all of them
// where it has no more. Each position of a game is as likely as any other; a game's draw depends on the seed,
// its key and its length alone.
std::vector<std::uint8_t> draw_positions(std::uint64_t seed, std::span<const std::uint64_t> game_key,
                                         std::span<const std::int64_t> lengths, std::size_t most);

}  // namespace alphazero
