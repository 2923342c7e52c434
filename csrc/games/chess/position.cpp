#include "games/chess/position.hpp"
