// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

#include "support/gradient_check.h"
#include "support/temporary_directory.h"

namespace lockstep::safetensors_test {
namespace {

/// Returns a file with this header and `data_bytes` bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header +
         std::string(data_bytes, '\1');
}

uint64_t header_bytes(const std::string& bytes) {
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  return size;
}

/// Expects the bytes to be refused as a user error. The message must name the source of the bytes and the
/// problem.
void expect_refused(const std::string& bytes, const std::string& problem) {
  try {
    from_safetensors(bytes, "model.safetensors");
    ADD_FAILURE() << "nothing was thrown; expected: " << problem;
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("model.safetensors is not a valid safetensors file"), 0U) << message;
    EXPECT_NE(message.find(problem), std::string::npos) << message;
  }
}

SafeTensors all_dtypes() {
  SafeTensors content;
  content.tensors = {{"z.first", uniform_tensor({2, 3}, 1, DType::f32)},
                     {"f64", uniform_tensor({5}, 2, DType::f64)},
                     {"bf16", uniform_tensor({3, 1, 1}, 3, DType::bf16)},
                     {"f16", uniform_tensor({1}, 4, DType::f16)},
                     {"i32", random_ids({2, 2, 2, 2}, 1000, 5)},
                     {"scalar", full({}, 2.5)},
                     {"nothing", zeros({0, 4})}};
  content.metadata = {{"step", "12"}, {"text", "quotes \" and \n lines, \xc3\xa9"}};
  return content;
}

void expect_equal(const SafeTensors& actual, const SafeTensors& expected) {
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    EXPECT_EQ(actual.tensors[i].name, expected.tensors[i].name);
    EXPECT_TRUE(has_same_bits(actual.tensors[i].tensor, expected.tensors[i].tensor))
        << expected.tensors[i].name;
  }
  EXPECT_EQ(actual.metadata, expected.metadata);
}

TEST(SafeTensors, EveryDTypeSurvivesARoundTrip) {
  const SafeTensors content = all_dtypes();
  expect_equal(from_safetensors(to_safetensors(content), "memory"), content);
  expect_equal(from_safetensors(to_safetensors({}), "memory"), {});
}

TEST(SafeTensors, AFileHoldsTheSame) {
  const TemporaryDirectory folder;
  const SafeTensors content = all_dtypes();
  write_text(folder / "file", to_safetensors(content));
  expect_equal(load_safetensors(folder / "file"), content);
}

TEST(SafeTensors, TheDataBeginsAtAMultipleOfEight) {
  for (const char* tensor : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}) {
    const std::string bytes = to_safetensors({{{tensor, full({1}, 1.0)}}, {}});
    EXPECT_EQ(header_bytes(bytes) % 8, 0U);
    EXPECT_EQ(bytes.size(), 8 + header_bytes(bytes) + 4);
    EXPECT_EQ(bytes[8], '{') << "the format requires it";
  }
}

TEST(SafeTensors, EqualContentGivesEqualBytes) {
  EXPECT_EQ(to_safetensors(all_dtypes()), to_safetensors(all_dtypes()));
}

TEST(SafeTensors, ReadsWhatPythonWrote) {
  const SafeTensors golden = load_safetensors(LOCKSTEP_SOURCE_DIR "/tests/golden/ops.safetensors");
  EXPECT_GT(golden.tensors.size(), 10U);
  for (const auto& [name, tensor] : golden.tensors)
    for (const double value : to_doubles(tensor)) ASSERT_TRUE(std::isfinite(value)) << name;
}

TEST(SafeTensors, AFileCutAnywhereIsRefused) {
  const std::string whole = to_safetensors(all_dtypes());
  for (size_t size = 0; size < whole.size(); size += size < 16 ? 1 : 7)
    expect_refused(whole.substr(0, size), "");
  expect_refused("1234567", "only 7 bytes");
  expect_refused(whole.substr(0, 20), "its header is cut off");
  expect_refused(whole.substr(0, whole.size() - 1), "its data are cut off");
  expect_refused(whole + "1", "after its last tensor");
}

/// Returns an empty file whose header claims another length.
std::string file_with_length(uint64_t length) {
  std::string bytes = file_of("{}", 0);
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

TEST(SafeTensors, AHeaderLongerThanTheFileIsRefused) {
  for (const uint64_t length : {uint64_t{3}, SafeTensorsHeader::most_text_bytes})
    expect_refused(file_with_length(length), "its header is cut off");
}

// A file of another kind begins with a random length.
TEST(SafeTensors, NothingOfATooLongHeaderIsRead) {
  for (const uint64_t length : {SafeTensorsHeader::most_text_bytes + 1, uint64_t{1} << 40, ~uint64_t{0}})
    expect_refused(file_with_length(length), concat("its header would have ", length, " bytes"));
  const TemporaryDirectory folder;
  const std::string path = folder / "model.safetensors";
  write_text(path, "a text, whose first bytes are the length of a header");
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // a sparse file of 1 TiB
  try {
    load_safetensors(path);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(
        std::string(error.what()).find(path + " is not a valid safetensors file: its header would have"), 0U)
        << error.what();
  }
}

TEST(SafeTensors, AHeaderIsReadFromAnyPartsOfAFile) {
  const std::string whole = to_safetensors(all_dtypes());
  const auto read = [](const std::string& file) {
    int64_t most = 0;
    const std::string header =
        SafeTensorsHeader::read("part.bin is damaged", [&](int64_t begin, int64_t bytes) {
          most = std::max(most, bytes);
          return begin < std::ssize(file)
                     ? file.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes))
                     : "";
        });
    EXPECT_EQ(most, std::ssize(header) - 8) << "only the header is asked for";
    return header;
  };
  const auto problem = [&](const std::string& file) {
    try {
      read(file);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(read(whole), whole.substr(0, 8 + header_bytes(whole)));
  EXPECT_EQ(problem("1234567"), "part.bin is damaged: it is only 7 bytes long");
  EXPECT_EQ(problem(whole.substr(0, 60)), "part.bin is damaged: its header is cut off");
  EXPECT_EQ(problem(file_with_length(uint64_t{1} << 50)),
            "part.bin is damaged: its header would have 1125899906842624 bytes");
}

TEST(SafeTensors, AHeaderThatNoReaderAcceptsIsNotWritten) {
  SafeTensorsHeader header;
  header.metadata["text"] = std::string(SafeTensorsHeader::most_text_bytes, 'x');
  EXPECT_THROW(header.to_bytes(), UserError);
}

TEST(SafeTensors, AHeaderThatIsNotAnObjectIsRefused) {
  for (const char* header : {"", "{", "not json", "[]", "3", "null", "\xff\xfe", R"({"a":{}} x)"})
    expect_refused(file_of(header, 4), "");
}

TEST(SafeTensors, EntriesThatMakeNoSenseAreRefusedByName) {
  const auto entry = [](const std::string& text) { return file_of(R"({"weight":)" + text + "}", 8); };
  const auto refused = [&](const std::string& text, const std::string& problem) {
    expect_refused(entry(text), "tensor weight: ");
    expect_refused(entry(text), problem);
  };
  EXPECT_NO_THROW(from_safetensors(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), ""));
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})", "[2] of f32 does not match its 9 bytes");
  refused(R"({"dtype":"F32","shape":[0],"data_offsets":[9,9]})", "9 to 9, but byte 0 must come next");
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})",
          "weight.data_offsets[1] is 0: it must be a whole number from 8");
  refused(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})",
          "weight.data_offsets[0] is -8: it must be a whole number from 0");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "[1] of f32 does not match its 8 bytes");
  refused(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})", "[2] of f64 does not match its 8 bytes");
  refused(R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})", "dtype I64 is not supported");
  refused(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})",
          "weight.shape[0] is -2: it must be a whole number from 0");
  refused(R"({"dtype":"F32","shape":[1,1,1,1,2],"data_offsets":[0,8]})", "at most 4 dimensions");
  refused(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})",
          "weight.shape[0] is 2.0: it must be a whole number");
  refused(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})", "its data are cut off");
  refused(R"({"dtype":"F32","shape":[2]})", "data_offsets");
  refused(R"({"dtype":"F32","shape":"2","data_offsets":[0,8]})", "");
  refused(R"({"dtype":3,"shape":[2],"data_offsets":[0,8]})", "");
  refused("7", "");
}

TEST(SafeTensors, TensorsThatOverlapOrLeaveGapsAreRefused) {
  for (const char* second : {"[4,8]", "[0,4]", "[12,16]"})
    expect_refused(file_of(concat(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)",
                                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":)", second, "}}"),
                           16),
                   "must come next");
}

// The product of these extents is 2^64, or it does not fit in 64 bits.
TEST(SafeTensors, AShapeTooLargeToCountIsRefused) {
  for (const char* shape :
       {"[4294967296,4294967296]", "[4611686018427387904,2,2]", "[2305843009213693952,2,1,0]"})
    expect_refused(file_of(concat(R"({"w":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":[0,0]}})"), 0),
                   "tensor w: ");
}

TEST(SafeTensors, AMissingFileIsNamed) {
  const TemporaryDirectory folder;
  for (const std::string& path : {folder / "missing", folder.path()}) try {
      load_safetensors(path);
      FAIL() << "nothing was thrown";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace lockstep::safetensors_test
