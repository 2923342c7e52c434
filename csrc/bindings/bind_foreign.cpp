// A game whose rules are Python objects with the methods of OpenSpiel's State.
//
// The GIL is taken for the time of one question. The core's locks are never waited for with it held: every
// binding that takes one releases the GIL first.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bindings/bindings.hpp"
#include "games/foreign/foreign.hpp"
#include "games/line.hpp"

namespace nb = nanobind;

namespace alphazero::bindings {
namespace {

using foreign::Facts;
using foreign::Held;
using Clock = std::chrono::steady_clock;

// States whose last holder let go of them, on whatever thread: they die when the GIL is held next.
struct Dead {
  std::mutex mutex;
  std::vector<PyObject*> states;
};

Dead& dead() {
  static Dead* const all = new Dead;
  return *all;
}

struct PythonState final : Held {
  explicit PythonState(PyObject* owned) : state(owned) {}
  ~PythonState() override {
    const std::lock_guard lock(dead().mutex);
    dead().states.push_back(state);
  }
  PyObject* state;
};

PyObject* state_of(const Facts& facts) { return static_cast<const PythonState&>(*facts.held).state; }

// Threads that ask the rules something, since when: the GIL guards it.
std::map<unsigned long, Clock::time_point>& asking() {
  static auto* const threads = new std::map<unsigned long, Clock::time_point>;
  return *threads;
}

// While it lives this thread may ask the rules.
class Question {
 public:
  Question() : thread_(PyThread_get_thread_ident()) {
    asking()[thread_] = Clock::now();
    std::vector<PyObject*> states;
    {
      const std::lock_guard lock(dead().mutex);
      states.swap(dead().states);
    }
    for (PyObject* state : states) Py_DECREF(state);
  }
  ~Question() { end(); }
  // The rules have answered, or raised.
  void end() { asking().erase(thread_); }

 private:
  nb::gil_scoped_acquire gil_;
  unsigned long thread_;
};

PyObject* checked(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  return result;
}

class PythonRules final : public foreign::Rules {
 private:
  [[noreturn]] void fail(const std::string& what) const { throw RulesError(name_ + ": " + what); }

  template <typename Ask>
  auto asked(const Ask& ask) const {
    Question question;
    try {
      return ask();
    } catch (nb::python_error& error) {
      question.end();
      if (error.matches(PyExc_KeyboardInterrupt)) throw;
      throw RulesError(nb::cast<std::string>(nb::handle(explain_)(nb::handle(error.value()))));
    }
  }

  static PyObject* interned(const char* name) { return checked(PyUnicode_InternFromString(name)); }

  template <typename... Args>
  static nb::object call(PyObject* state, PyObject* name, Args... args) {
    PyObject* const all[] = {state, args...};
    return nb::steal(checked(PyObject_VectorcallMethod(name, all, 1 + sizeof...(args), nullptr)));
  }

  nb::object clone(PyObject* state) const {
    if (clone_with_ == nullptr) return call(state, clone_);
    return nb::steal(checked(PyObject_CallOneArg(clone_with_, state)));
  }

 public:
  // start: a state at the start of the game, which stays there. clone: of a state; None: its method.
  // explain: an exception as one line. array: a tensor of any shape as a contiguous array of floats.
  PythonRules(std::string name, std::size_t num_moves, nb::object start, nb::object clone, nb::object explain,
              nb::object array)
      : name_(std::move(name)),
        num_moves_(num_moves),
        start_(start.release().ptr()),
        clone_with_(clone.is_none() ? nullptr : clone.release().ptr()),
        explain_(explain.release().ptr()),
        array_(array.release().ptr()) {}

  Facts initial() const override {
    return asked([&] { return facts_of(clone(start_), true); });
  }

  Facts of(const Held& state) const override {
    return asked([&] { return facts_of(clone(static_cast<const PythonState&>(state).state), true); });
  }

  Facts after(const Facts& before, Move move) const override {
    return asked([&] {
      nb::object next = clone(state_of(before));
      const nb::object number = nb::steal(checked(PyLong_FromLong(move)));
      call(next.ptr(), apply_action_, number.ptr());
      return facts_of(std::move(next), !before.first_moves);
    });
  }

  foreign::Replayed replay(std::span<const Move> moves) const override {
    return asked([&] {
      foreign::Replayed found;
      nb::object state = clone(start_);
      for (const Move move : moves) {
        if (is_over(state.ptr())) break;
        const nb::object number = nb::steal(checked(PyLong_FromLong(move)));
        const int is_legal = PySequence_Contains(call(state.ptr(), legal_actions_).ptr(), number.ptr());
        if (is_legal < 0) throw nb::python_error();
        if (is_legal == 0) break;
        call(state.ptr(), apply_action_, number.ptr());
        ++found.num_legal;
      }
      found.facts = facts_of(std::move(state), true);
      return found;
    });
  }

  void observe(const Facts& facts, std::span<float> planes) const override {
    asked([&] {
      const nb::object player = nb::int_(facts.first_moves ? 0 : 1);
      const nb::object seen = call(state_of(facts), observation_tensor_, player.ptr());
      if (is_flat_list(seen.ptr(), planes.size())) {
        read_list(seen.ptr(), planes);
      } else {
        const nb::object flat = nb::handle(array_)(seen);
        const auto values =
            nb::cast<nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(flat);
        require_size(values.size(), planes.size());
        std::copy_n(values.data(), values.size(), planes.begin());
      }
      for (std::size_t i = 0; i < planes.size(); ++i) {
        if (!std::isfinite(planes[i])) {
          fail("observation_tensor: number " + std::to_string(i) + " is not finite");
        }
      }
      return 0;
    });
  }

  std::string move_text(const Facts& facts, Move move) const override {
    return asked([&] {
      const nb::object player = nb::int_(facts.first_moves ? 0 : 1),
                       number = nb::int_(static_cast<int>(move));
      return text_of(call(state_of(facts), action_to_string_, player.ptr(), number.ptr()),
                     "action_to_string");
    });
  }

  std::string drawing(const Facts& facts) const override {
    return asked([&] { return text_of(nb::steal(checked(PyObject_Str(state_of(facts)))), "str"); });
  }

 private:
  bool is_over(PyObject* state) const {
    const int truth = PyObject_IsTrue(call(state, is_terminal_).ptr());
    if (truth < 0) throw nb::python_error();
    return truth == 1;
  }

  // first_moves: whose turn it counts as where the game is over.
  Facts facts_of(nb::object state, bool first_moves) const {
    Facts facts;
    facts.first_moves = first_moves;
    facts.is_over = is_over(state.ptr());
    if (facts.is_over) {
      facts.result = result_of(call(state.ptr(), returns_));
    } else {
      const long player = PyLong_AsLong(call(state.ptr(), current_player_).ptr());
      if (player == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
      if (player != 0 && player != 1) {
        fail("current_player() is " + std::to_string(player) +
             "; expected 0 or 1 while the game is not over");
      }
      facts.first_moves = player == 0;
      facts.legal = moves_of(call(state.ptr(), legal_actions_));
      if (facts.legal.empty()) fail("legal_actions() is empty while is_terminal() is false");
    }
    facts.held = std::make_shared<PythonState>(state.release().ptr());
    return facts;
  }

  std::int8_t result_of(const nb::object& returns) const {
    const nb::object all = nb::steal(PySequence_Fast(returns.ptr(), ""));
    std::array<double, 2> values{};
    const bool are_two = all.ptr() != nullptr && PySequence_Fast_GET_SIZE(all.ptr()) == 2;
    for (Py_ssize_t i = 0; are_two && i < 2; ++i) {
      values[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(all.ptr(), i));
    }
    const bool are_numbers = are_two && PyErr_Occurred() == nullptr;
    PyErr_Clear();
    const bool is_result = values[0] == -1.0 || values[0] == 0.0 || values[0] == 1.0;
    if (!are_numbers || !is_result || values[1] != -values[0]) {
      fail("returns() is " + text_of(nb::repr(returns), "repr") + "; expected [1, -1], [0, 0] or [-1, 1]");
    }
    return static_cast<std::int8_t>(values[0]);
  }

  std::vector<Move> moves_of(const nb::object& actions) const {
    const nb::object all = nb::steal(checked(PySequence_Fast(actions.ptr(), "legal_actions() is no list")));
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(all.ptr());
    std::vector<Move> moves;
    moves.reserve(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      const nb::object index = nb::steal(checked(PyNumber_Index(PySequence_Fast_GET_ITEM(all.ptr(), i))));
      const long move = PyLong_AsLong(index.ptr());
      if (move == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
      if (move < 0 || static_cast<std::size_t>(move) >= num_moves_) {
        fail("legal_actions() has " + std::to_string(move) + "; expected 0 to " +
             std::to_string(num_moves_ - 1));
      }
      moves.push_back(static_cast<Move>(move));
    }
    std::ranges::sort(moves);
    const auto twice = std::ranges::adjacent_find(moves);
    if (twice != moves.end()) fail("legal_actions() has " + std::to_string(*twice) + " twice");
    return moves;
  }

  void require_size(std::size_t found, std::size_t expected) const {
    if (found != expected) {
      fail("observation_tensor: " + std::to_string(found) + " numbers; expected " + std::to_string(expected));
    }
  }

  // Lists of lists, and those of another size, are left to numpy.
  static bool is_flat_list(PyObject* seen, std::size_t size) {
    return PyList_CheckExact(seen) && static_cast<std::size_t>(PyList_GET_SIZE(seen)) == size &&
           !PyList_CheckExact(PyList_GET_ITEM(seen, 0));
  }

  void read_list(PyObject* list, std::span<float> planes) const {
    for (std::size_t i = 0; i < planes.size(); ++i) {
      const double value = PyFloat_AsDouble(PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i)));
      if (value == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
      planes[i] = static_cast<float>(value);
    }
  }

  std::string text_of(const nb::object& text, const char* of) const {
    if (!PyUnicode_Check(text.ptr())) fail(std::string(of) + ": expected a text");
    return nb::cast<std::string>(text);
  }

  std::string name_;
  std::size_t num_moves_;
  // Never let go of: the last one to hold the rules may not have the GIL.
  PyObject* start_;
  PyObject* clone_with_;
  PyObject* explain_;
  PyObject* array_;
  PyObject* clone_ = interned("clone");
  PyObject* apply_action_ = interned("apply_action");
  PyObject* is_terminal_ = interned("is_terminal");
  PyObject* returns_ = interned("returns");
  PyObject* current_player_ = interned("current_player");
  PyObject* legal_actions_ = interned("legal_actions");
  PyObject* observation_tensor_ = interned("observation_tensor");
  PyObject* action_to_string_ = interned("action_to_string");
};

void use_rules(const std::string& name, int height, int width, int num_planes, int num_moves, int max_plies,
               nb::object start, nb::object clone, nb::object explain, nb::object array) {
  foreign::use_rules({name, height, width, num_planes, num_moves, max_plies},
                     std::make_shared<PythonRules>(name, num_moves, std::move(start), std::move(clone),
                                                   std::move(explain), std::move(array)));
  bind_foreign_sizes();
}

using Images = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void use_symmetries(const std::vector<std::pair<Images, Images>>& symmetries) {
  const auto copied = [](const Images& images) {
    return std::vector<std::int32_t>(images.data(), images.data() + images.size());
  };
  std::vector<foreign::Symmetry> all;
  for (const auto& [numbers, actions] : symmetries) all.push_back({copied(numbers), copied(actions)});
  foreign::use_symmetries(std::move(all));
  bind_foreign_sizes();
}

Line<Foreign> line_of_state(nb::object state) {
  const PythonState held(state.release().ptr());
  return Line<Foreign>(Foreign::from_held(held));
}

nb::object state_of_line(const Line<Foreign>& line) { return nb::borrow(state_of(*line.state().position)); }

std::vector<std::pair<unsigned long, double>> threads_asking() {
  std::vector<std::pair<unsigned long, double>> threads;
  for (const auto& [thread, since] : asking()) {
    threads.emplace_back(thread, std::chrono::duration<double>(Clock::now() - since).count());
  }
  return threads;
}

}  // namespace

void bind_foreign(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const RulesError& error) {
      const nb::object kind = nb::module_::import_("alphazero.base.errors").attr("RulesError");
      PyErr_SetString(kind.ptr(), error.what());
    }
  });
  module.def(
      "use_rules", &use_rules, nb::arg("name"), nb::kw_only(), nb::arg("height"), nb::arg("width"),
      nb::arg("num_planes"), nb::arg("num_moves"), nb::arg("max_plies"), nb::arg("start"),
      nb::arg("clone").none(), nb::arg("explain"), nb::arg("array"),
      "From now on ForeignLine and its like are of this game. start: a state as OpenSpiel's, at the start "
      "of the game. clone: what copies a state; None: its method. explain: an exception as one line. "
      "array: what observation_tensor gives as f32 [numbers]. GameError while positions of another game "
      "are in use.");
  module.def(
      "use_symmetries", &use_symmetries, nb::arg("symmetries"),
      "From now on the game in use has the identity and these: where each number of an observation goes "
      "as i32 [numbers], and the image of each action, -1 where it is not known, as i32 [actions]. "
      "GameError for what is no permutation.");
  module.def("line_of_state", &line_of_state, nb::arg("state"),
             "A ForeignLine that begins at a copy of this state, whose moves before are not known. Its texts "
             "begin with 'state', and it equals no other line. RulesError for any other object.");
  module.def("state_of_line", &state_of_line, nb::arg("line"),
             "The state at the end of a ForeignLine: to look at, and to copy before it is changed.");
  module.def("threads_asking_rules", &threads_asking,
             "Threads that wait for an answer of the rules, and for how many seconds.");
}

}  // namespace alphazero::bindings
