// Batch encoders and the order of the samples, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "data/batch_encoder.hpp"
#include "data/permutation.hpp"
#include "games/chess/chess_game.hpp"
#include "games/connect4/connect4.hpp"
#include "games/tictactoe/tictactoe.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

// An encoder and the Python arrays that its shards look into.
template <Game G>
struct EncoderOfArrays {
  explicit EncoderOfArrays(int num_threads) : encoder(num_threads) {}

  BatchEncoder<G> encoder;
  std::vector<nb::object> owners;
};

// SearchView's arrays in the order of SearchColumns.
using SearchArrays =
    std::tuple<Input1<std::int32_t>, Input1<float>, Input1<float>, Input1<std::int32_t>,
               Input1<std::uint32_t>, Input1<std::int32_t>, Input1<std::uint16_t>, Input1<std::uint16_t>>;

SearchColumns columns_of(const SearchArrays& arrays) {
  return std::apply([](const auto&... array) { return SearchColumns{as_span(array)...}; }, arrays);
}

template <Game G>
void add_shard(EncoderOfArrays<G>& self, const std::string& name, Input1<std::uint16_t> moves,
               Input1<std::int32_t> moves_offset, Input1<std::int8_t> result, Input1<bool> result_valid,
               Input1<std::uint8_t> fen_bytes, Input1<std::int32_t> fen_offset,
               const std::optional<SearchArrays>& search) {
  self.encoder.add_shard({name, as_span(moves), as_span(moves_offset), as_span(result), as_span(result_valid),
                          as_span(fen_bytes), as_span(fen_offset),
                          search ? columns_of(*search) : std::optional<SearchColumns>()});
  if (search) self.owners.push_back(nb::cast(*search));
  for (const nb::object& owner : {nb::cast(moves), nb::cast(moves_offset), nb::cast(result),
                                  nb::cast(result_valid), nb::cast(fen_bytes), nb::cast(fen_offset)}) {
    self.owners.push_back(owner);
  }
}

using BatchArrays = std::tuple<Array2<std::uint8_t>, Array1<std::int32_t>, Array1<std::int32_t>,
                               Array1<float>, Array2<float>, Array1<float>>;

template <Game G>
BatchArrays encode(EncoderOfArrays<G>& self, Input1<std::int32_t> shard, Input1<std::int32_t> game,
                   Input1<std::int32_t> ply, HistoryFill fill, double value_q_ratio) {
  EncodedBatch batch;
  {
    const nb::gil_scoped_release release;
    batch = self.encoder.encode({as_span(shard), as_span(game), as_span(ply)}, fill, value_q_ratio);
  }
  return {to_numpy(std::move(batch.packed), packed_bytes<G>()),
          to_numpy(std::move(batch.legal_offset)),
          to_numpy(std::move(batch.legal_index)),
          to_numpy(std::move(batch.policy)),
          to_numpy(std::move(batch.wdl), 3),
          to_numpy(std::move(batch.moves_left))};
}

template <Game G>
Array1<std::uint64_t> position_keys(EncoderOfArrays<G>& self, std::size_t shard, Input1<std::int32_t> games) {
  std::vector<std::uint64_t> keys;
  {
    const nb::gil_scoped_release release;
    keys = self.encoder.position_keys(shard, as_span(games));
  }
  return to_numpy(std::move(keys));
}

template <Game G>
void bind_encoder(nb::module_& module, const char* name) {
  using E = EncoderOfArrays<G>;
  nb::class_<E>(module, name, "Sampled plies of stored games to batches for the network.")
      .def(nb::init<int>(), nb::arg("num_threads"),
           "num_threads: at least 1; the calling thread is one of them.")
      .def("add_shard", &add_shard<G>, nb::arg("name"), nb::arg("moves").noconvert(),
           nb::arg("moves_offset").noconvert(), nb::arg("result").noconvert(),
           nb::arg("result_valid").noconvert(), nb::arg("fen_bytes").noconvert(),
           nb::arg("fen_offset").noconvert(), nb::arg("search") = nb::none(),
           "The columns of a ShardView, kept alive and not copied; GameError if they do not fit together.")
      .def("encode", &encode<G>, nb::arg("shard").noconvert(), nb::arg("game").noconvert(),
           nb::arg("ply").noconvert(), nb::arg("fill"), nb::arg("value_q_ratio") = 0.0,
           "The positions before move `ply` of row `game` of shard `shard`, i32 [B] each.\n\n"
           "Returns the arrays of alphazero.data.batch.Batch without sample_id: packed, legal_offset, "
           "legal_index, policy (the search's, or 1 on the move played), wdl (the result, with value_q_ratio "
           "of "
           "the search's value), moves_left. IndexError for places that do not exist, GameError for games "
           "that cannot be replayed.")
      .def("position_keys", &position_keys<G>, nb::arg("shard"), nb::arg("games").noconvert(),
           "u64 [plies of all `games`]: the key of the position before each move, game after game.");
}

Array1<std::int64_t> sample_ids(std::uint64_t seed, std::uint64_t first, std::size_t count,
                                std::uint64_t num_samples) {
  if (num_samples == 0) throw std::invalid_argument("no samples");
  SampleOrder order(seed, num_samples);
  std::vector<std::int64_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int64_t>(order.at(first + i));
  return to_numpy(std::move(ids));
}

}  // namespace

void bind_loader(nb::module_& module) {
  bind_encoder<Chess>(module, "ChessBatchEncoder");
  bind_encoder<Connect4>(module, "Connect4BatchEncoder");
  bind_encoder<TicTacToe>(module, "TicTacToeBatchEncoder");
  module.def("sample_ids", &sample_ids, nb::arg("seed"), nb::arg("first"), nb::arg("count"),
             nb::arg("num_samples"),
             "i64 [count]: the samples at places first, first + 1, ... of the endless order of num_samples "
             "samples that `seed` names; each epoch is a permutation of its own.");
}

}  // namespace alphazero::bindings
