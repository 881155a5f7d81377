// Between the library's values and Python's: JSON as objects, arrays as NumPy views that copy
// nothing, Ctrl-C as an exception.
// Not: the classes that Python sees (module.cpp).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "tawpipe/core/stop.hpp"

namespace tawpipe::python {

namespace nb = nanobind;

/// The JSON value as None, bool, int, float, str, list or dict.
inline nb::object to_python(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return nb::bool_(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return nb::int_(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      return nb::int_(json.get<std::uint64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return nb::float_(json.get<double>());
    case nlohmann::ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    }
    case nlohmann::ordered_json::value_t::array: {
      nb::list list;
      for (const auto& item : json) list.append(to_python(item));
      return list;
    }
    case nlohmann::ordered_json::value_t::object: {
      nb::dict dict;
      for (const auto& [key, value] : json.items()) dict[nb::str(key.c_str(), key.size())] = to_python(value);
      return dict;
    }
    case nlohmann::ordered_json::value_t::null:
    case nlohmann::ordered_json::value_t::binary:
    case nlohmann::ordered_json::value_t::discarded:
      break;
  }
  return nb::none();
}

/// A read-only NumPy view of `items`, [items.size()]; keeps `owner`, which holds them, alive.
template <class As, class T>
nb::object view(std::span<const T> items, nb::handle owner) {
  static_assert(sizeof(As) == sizeof(T));
  using Array = nb::ndarray<nb::numpy, const As, nb::ndim<1>>;
  return nb::cast(Array(reinterpret_cast<const As*>(items.data()), {items.size()}, owner), nb::rv_policy::reference);
}

/// The same of the items' bytes, as a NumPy array of records. @param dtype  what numpy.dtype takes
template <class T>
nb::object records(std::span<const T> items, nb::handle owner, nb::handle dtype) {
  return view<std::uint8_t>(std::span{reinterpret_cast<const std::uint8_t*>(items.data()), items.size_bytes()}, owner)
      .attr("view")(dtype);
}

/// A NumPy array that owns its data, [items.size()].
template <class T>
nb::object array_of(std::vector<T> items) {
  auto* held = new std::vector<T>(std::move(items));
  const nb::capsule owner(held, [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

/// While it lives, what Python's handlers of signals raise (KeyboardInterrupt) ends the computations
/// that this thread has begun. It asks at most 20 times a second, as another thread may have the GIL
/// for 5 ms.
class SignalsEndComputations {
 public:
  /// @param keeps_best  KeyboardInterrupt is no exception: a search returns the best so far
  explicit SignalsEndComputations(bool keeps_best) : keeps_best_{keeps_best} {}

  /// Whether they were told to end. May be called by all threads that take part.
  bool operator()() const {
    const auto now = std::chrono::steady_clock::now();
    if (told_ || std::this_thread::get_id() != thread_ || now < next_) return told_;
    next_ = now + std::chrono::milliseconds{50};
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() == 0) return false;
    told_ = true;  // for the other threads
    if (!keeps_best_ || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) throw nb::python_error();
    PyErr_Clear();
    return true;
  }

 private:
  bool keeps_best_;
  std::thread::id thread_ = std::this_thread::get_id();
  mutable std::chrono::steady_clock::time_point next_{};  ///< of that thread only
  mutable std::atomic<bool> told_{false};
  StopScope scope_{*this};
};

}  // namespace tawpipe::python
