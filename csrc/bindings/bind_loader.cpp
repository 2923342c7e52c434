// Batch encoders and the order of the samples, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
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

#include "base/hash.hpp"
#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/search_arrays.hpp"
#include "data/batch_encoder.hpp"
#include "data/permutation.hpp"
#include "games/all_games.hpp"

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

template <Game G>
void add_shard(EncoderOfArrays<G>& self, const std::string& name, Input1<std::uint16_t> moves,
               Input1<std::int32_t> moves_offset, Input1<std::int8_t> result, Input1<bool> result_valid,
               Input1<std::uint8_t> fen_bytes, Input1<std::int32_t> fen_offset,
               const std::optional<SearchArrays>& search, const std::optional<EvalArrays>& evals) {
  self.encoder.add_shard({name, as_span(moves), as_span(moves_offset), as_span(result), as_span(result_valid),
                          as_span(fen_bytes), as_span(fen_offset),
                          search ? columns_of(*search) : std::optional<SearchColumns>(),
                          evals ? columns_of(*evals) : std::optional<EvalColumns>()});
  if (search) self.owners.push_back(nb::cast(*search));
  if (evals) self.owners.push_back(nb::cast(*evals));
  for (const nb::object& owner : {nb::cast(moves), nb::cast(moves_offset), nb::cast(result),
                                  nb::cast(result_valid), nb::cast(fen_bytes), nb::cast(fen_offset)}) {
    self.owners.push_back(owner);
  }
}

using BatchArrays = std::tuple<Array2<std::uint8_t>, Array1<std::int32_t>, Array1<std::int32_t>,
                               Array1<float>, Array2<float>, Array1<float>>;

template <Game G>
BatchArrays encode(EncoderOfArrays<G>& self, Input1<std::int32_t> shard, Input1<std::int32_t> game,
                   Input1<std::int32_t> ply, HistoryFill fill, double value_q_ratio,
                   const std::optional<Input1<std::uint8_t>>& symmetry,
                   const std::optional<std::pair<double, double>>& curve) {
  EncodedBatch batch;
  {
    const nb::gil_scoped_release release;
    const std::span<const std::uint8_t> turned =
        symmetry ? as_span(*symmetry) : std::span<const std::uint8_t>();
    ValueTarget value{value_q_ratio, std::nullopt};
    if (curve) value.curve = ValueCurve{curve->first, curve->second};
    batch = self.encoder.encode({as_span(shard), as_span(game), as_span(ply), turned}, fill, value);
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
           nb::arg("fen_offset").noconvert(), nb::arg("search").noconvert() = nb::none(),
           nb::arg("evals").noconvert() = nb::none(),
           "The columns of a ShardView, kept alive and not copied; GameError if they do not fit together.")
      .def("encode", &encode<G>, nb::arg("shard").noconvert(), nb::arg("game").noconvert(),
           nb::arg("ply").noconvert(), nb::arg("fill"), nb::arg("value_q_ratio") = 0.0,
           nb::arg("symmetry").noconvert() = nb::none(), nb::arg("curve") = nb::none(),
           "The positions before move `ply` of row `game` of shard `shard`, i32 [B] each, shown in "
           "`symmetry` u8 [B] of the game (None: as they stand).\n\n"
           "Returns the arrays of alphazero.games.batch.Batch without sample_id: packed, legal_offset, "
           "legal_index, policy (the search's, or 1 on the move played), wdl (the result, with value_q_ratio "
           "of the search's value where there was a search, or else of evaluations by `curve`, a and b of "
           "ValueCurve, if it is given), moves_left. IndexError for places that do not exist, GameError for "
           "games that cannot be replayed and policies with illegal moves.")
      .def("position_keys", &position_keys<G>, nb::arg("shard"), nb::arg("games").noconvert(),
           "u64 [plies of all `games`]: the key of the position before each move, game after game.");
}

// As many different streams as there are seeds and places.
Array1<std::uint8_t> symmetries(std::uint64_t seed, std::uint64_t first, std::size_t count,
                                int num_symmetries) {
  if (num_symmetries < 1 || num_symmetries > 256) throw std::invalid_argument("1 to 256 symmetries");
  std::vector<std::uint8_t> chosen(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix64(mix64(seed + kGolden) + first + i);
    chosen[i] = static_cast<std::uint8_t>((bits >> 32) * static_cast<std::uint64_t>(num_symmetries) >> 32);
  }
  return to_numpy(std::move(chosen));
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
#define ALPHAZERO_BIND_ENCODER(G) bind_encoder<G>(module, #G "BatchEncoder");
  ALPHAZERO_ALL_GAMES(ALPHAZERO_BIND_ENCODER)
#undef ALPHAZERO_BIND_ENCODER
  module.def(
      "symmetries", &symmetries, nb::arg("seed"), nb::arg("first"), nb::arg("count"),
      nb::arg("num_symmetries"),
      "u8 [count]: a symmetry in [0, num_symmetries) for each of the places first, first + 1, ... of the "
      "endless order of samples that `seed` names, all as likely.");
  module.def("sample_ids", &sample_ids, nb::arg("seed"), nb::arg("first"), nb::arg("count"),
             nb::arg("num_samples"),
             "i64 [count]: the samples at places first, first + 1, ... of the endless order of num_samples "
             "samples that `seed` names; each epoch is a permutation of its own.");
}

}  // namespace alphazero::bindings
