#include "tawpipe/report/pickle.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "support/text.hpp"

namespace pickle_test {

using namespace tawpipe;
using support::has;
using namespace std::string_view_literals;

namespace {

std::string fault(std::string_view bytes) {
  try {
    parse_pickle(bytes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("data of protocols 2 and 4 is read") {
  // pickle.dumps({"a": [1, 300, -2, 2.5, None, True], "b": (1,)}, protocol=2)
  CHECK(parse_pickle("\x80\x02}q\x00(X\x01\x00\x00\x00"
                     "aq\x01]q\x02(K\x01M,\x01J\xfe\xff\xff\xffG@\x04\x00\x00\x00\x00\x00\x00N\x88"
                     "eX\x01\x00\x00\x00"
                     "bq\x03K\x01\x85q\x04u."sv)
            .dump() == R"({"a":[1,300,-2,2.5,null,true],"b":[1]})");
  // pickle.dumps(["x", "x", 2**40], protocol=4): the second text comes from the memo
  CHECK(parse_pickle("\x80\x04\x95\x13\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x01x\x94h\x01\x8a\x06\x00\x00\x00\x00\x00\x01"
                     "e."sv)
            .dump() == R"(["x","x",1099511627776])");
}

TEST_CASE("functions and objects are refused, and nothing is executed") {
  // os.system("true") as malicious pickles call it
  CHECK(has(fault("\x80\x02"
                  "cos\nsystem\nX\x04\x00\x00\x00true\x85R."sv),
            "holds a function or an object"));
  CHECK(has(fault("\x80\x04\x8c\x02os\x8c\x06system\x93."sv), "holds a function or an object"));
}

TEST_CASE("a pickle that is cut, deep or wrong is refused with its byte") {
  CHECK(has(fault("\x80\x02X\xff\xff\xff\xff"sv), "it ends too early"));
  CHECK(has(fault("\x80\x02]e."sv), "lacks its mark"));
  CHECK(has(fault("\x80\x02K\x01K\x02s."sv), "not a dictionary"));
  CHECK(has(fault("\x80\x02NN(\x86t."sv), "an operation lacks its value"));  // a pair of what is below the mark
  CHECK(has(fault("\x80\x02N\x87."sv), "an operation lacks its value"));
  CHECK(has(fault("\x80\x02h\x05."sv), "the memo has no such value"));
  CHECK(has(fault("\x80\x02" + std::string(100, '(')), "deep in each other"));
  CHECK(has(fault("\x80\x09."sv), "protocol 9"));
  CHECK(has(fault(""), "it ends too early"));
  CHECK(has(fault("\x80\x02K\x01"), "it ends too early"));
}

TEST_CASE("lists and dictionaries may stand in several places, as the frames of PyTorch's recorder do") {
  // x = {"f": [1]}; pickle.dumps([x, x, x["f"]], protocol=2)
  CHECK(
      parse_pickle(
          "\x80\x02\x5d\x71\x00\x28\x7d\x71\x01\x58\x01\x00\x00\x00\x66\x71\x02\x5d\x71\x03\x4b\x01\x61\x73\x68\x01\x68\x03\x65\x2e"sv)
          .dump() == R"([{"f":[1]},{"f":[1]},[1]])");
  // x = [1]; x.append(x); pickle.dumps(x, protocol=2)
  CHECK(has(fault("\x80\x02\x5d\x71\x00\x28\x4b\x01\x68\x00\x65\x2e"sv), "holds itself"));
  // x = [0] * 10, then x = [x] * 10 eight times, as pickle writes it: a billion numbers in 212
  // bytes
  std::string bomb = "\x80\x02";
  for (char i = 0; i <= 8; ++i) bomb += std::string{']', 'q', i, '('};
  for (int n = 0; n < 10; ++n) bomb += std::string{'K', '\0'};
  for (char i = 8; i > 0; --i) {
    bomb += 'e';
    for (int n = 0; n < 9; ++n) bomb += std::string{'h', i};
  }
  CHECK(has(fault(bomb + "e."), "what stands in several places has more than"));
}

}  // namespace pickle_test
