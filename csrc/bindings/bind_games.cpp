// Python face of ... (owner fills in)
#include "bindings/bindings.hpp"

namespace alphazero::bindings {

void bind_games(nanobind::module_&) {}

}  // namespace alphazero::bindings
