// Random numbers of the position key (Zobrist 1970), made at compile time: the same on every machine.
#pragma once

#include <array>
#include <cstdint>

namespace alphazero::chess::zobrist {

struct Keys {
  std::array<std::array<std::array<std::uint64_t, 64>, 6>, 2> piece{};  // colour, type, square
  std::array<std::uint64_t, 64> castling_rook{};                        // square of a rook that may castle
  std::array<std::uint64_t, 8> en_passant{};                            // file of a legal en passant capture
  std::uint64_t black_to_move = 0;
};

// SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

constexpr Keys make_keys() {
  Keys keys;
  std::uint64_t state = 0x616c7068617a6572;  // "alphazer"
  for (auto& color : keys.piece) {
    for (auto& type : color) {
      for (auto& key : type) key = next_random(state);
    }
  }
  for (auto& key : keys.castling_rook) key = next_random(state);
  for (auto& key : keys.en_passant) key = next_random(state);
  keys.black_to_move = next_random(state);
  return keys;
}

inline constexpr Keys kKeys = make_keys();

}  // namespace alphazero::chess::zobrist
