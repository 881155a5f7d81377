// A reference to something that can be called, for functions that are compiled once.
// Not: a copy of it (std::function, whose header is many times as long).
#pragma once

#include <type_traits>
#include <utility>

namespace tawpipe::inline v0 {

template <class Signature>
class FunctionRef;

/// Refers to a lambda or another object with a call operator, which must outlive it. Two pointers.
/// Example: `int sum(FunctionRef<int(int)> of) { return of(1) + of(2); }`
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Object>
  requires(!std::is_same_v<std::remove_cvref_t<Object>, FunctionRef> && std::is_invocable_r_v<Result, Object&, Arguments...>)
      FunctionRef(Object&& object)
      : object_{const_cast<void*>(static_cast<const void*>(&object))}, call_{[](void* of, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Object>*>(of))(std::forward<Arguments>(arguments)...);
        }} {}

  Result operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace tawpipe
