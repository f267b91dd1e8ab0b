// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rondo/trainer/checkpoint.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "tests/support/catch.hpp"
#include "tests/trainer/worlds.hpp"
#include "trainer/file.hpp"

namespace {

namespace fs = std::filesystem;
using rondo::Communicator;
using rondo::DataType;
using rondo::test::each_rank;
using rondo::test::no_errors;
using rondo::test::sentence_of;
using rondo::test::thrown_by;
using namespace rondo::trainer;

class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "rondo-checkpoint-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
// A file by hand: the length, the header, the data.
std::vector<std::byte> file_of(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return bytes_of(text + header + data);
}

Checkpoint numbered(int number, std::size_t count) {
  std::vector<std::int32_t> values(count, number);
  Checkpoint checkpoint;
  checkpoint.put(Parameter{"number", values.data(), nullptr, count, DataType::i32, {}});
  checkpoint.texts["epoch"] = std::to_string(number);
  return checkpoint;
}
// -1 unless it is one of the files above, as a whole.
int number_of(const Checkpoint& checkpoint, std::size_t count) {
  std::vector<std::int32_t> values(count);
  checkpoint.get(Parameter{"number", values.data(), nullptr, count, DataType::i32, {}});
  for (const std::int32_t value : values) {
    if (value != values[0] || std::to_string(value) != checkpoint.texts.at("epoch")) return -1;
  }
  return values[0];
}

}  // namespace

TEST_CASE("a checkpoint of parameters, optimizer state and texts comes back on every rank") {
  const Folder folder;
  CHECK(each_rank(3, [&](Communicator& comm) {
          std::vector<float> weight = {1, 2, 3, 4, 5, 6}, momentum(6, 0.25F);
          std::vector<double> bias = {0.1};
          std::vector<rondo::bfloat16> half(3, rondo::bfloat16(1.5F));
          std::vector<Parameter> model = {parameter("net.weight", std::span(weight)),
                                          parameter("module.bias", std::span(bias)),
                                          parameter("half", std::span(half))};
          model[0].shape = {2, 3};
          const std::vector<Parameter> state = {parameter("net.weight", std::span(momentum))};
          Checkpoint checkpoint;
          if (comm.rank() == 0) {
            checkpoint.put(model);
            checkpoint.put(state, "momentum.");
            checkpoint.texts = {{"epoch", "7"}, {"note", "a \"quoted\"\nline"}};
          }
          save_once(comm, folder.file("net"), checkpoint);
          for (auto* values : {&weight, &momentum}) values->assign(6, 0.0F);
          bias[0] = 0;
          const Checkpoint loaded = comm.rank() == 1 ? load(folder.file("net")) : load(folder.file("net"));
          loaded.get(model);
          loaded.get(state, "momentum.");
          if (weight[5] != 6 || momentum[5] != 0.25F || bias[0] != 0.1) throw std::runtime_error("values");
          if (loaded.texts.at("note") != "a \"quoted\"\nline") throw std::runtime_error("texts");
          const Checkpoint told = load(comm, folder.file("net"));
          if (told.tensors.size() != 4 || told.tensors.count("bias") != 1) throw std::runtime_error("keys");
        }) == no_errors(3));
}

TEST_CASE("the bytes are the format's") {
  std::vector<float> a = {1.0F};
  Checkpoint checkpoint;
  checkpoint.put(parameter("a", std::span(a)));
  const std::string header = R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  const std::string spaces((8 - header.size() % 8) % 8, ' ');
  CHECK(checkpoint.serialize() == file_of(header + spaces, std::string("\0\0\x80\x3f", 4)));
}

TEST_CASE("foreign files lose one leading module., and what is wrong with others is said") {
  const auto parse = [](const std::string& header, const std::string& data) {
    return Checkpoint::parse(file_of(header, data));
  };
  const Checkpoint foreign = parse(R"({"module.a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},
                "module.module.b":{"dtype":"U8","shape":[],"data_offsets":[0,1]},
                "submodule.c":{"dtype":"F8_E4M3","shape":[0,5],"data_offsets":[3,3]}})",
                                   "xyz");
  CHECK(foreign.tensors.count("a") == 1);
  CHECK(foreign.tensors.count("module.b") == 1);
  CHECK(foreign.tensors.count("submodule.c") == 1);
  CHECK(foreign.tensors.at("a").bytes == bytes_of("yz"));
  const auto refused = [&](const std::string& header, const std::string& part) {
    const std::string sentence = sentence_of(thrown_by([&] { parse(header, "xyz"); }));
    INFO(sentence);
    CHECK(has(sentence, part));
  };
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "'a' does not lie");
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "'a' does not lie");
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[3,1]}})", "'a' does not lie");
  refused(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "'a' is too large");
  refused(R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,3]}})", "C64");
  refused(R"({"a":{"dtype":"U8","shape":[1]}})", "data_offsets");
  refused(R"({"a":)", "parse error");
  CHECK(has(sentence_of(thrown_by([] { Checkpoint::parse(bytes_of("short")); })), "shorter than 8 bytes"));
  CHECK(
      has(sentence_of(thrown_by([] { Checkpoint::parse(bytes_of("\xff\xff\xff\xff\xff\xff\xff\x7f{}")); })), "header"));
}

TEST_CASE("a tensor that is missing or different is named") {
  std::vector<float> a = {1, 2};
  Checkpoint checkpoint;
  checkpoint.put(parameter("a", std::span(a)));
  std::vector<float> three(3);
  std::vector<double> wide(2);
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(parameter("b", std::span(a))); })), "no tensor 'b'"));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(parameter("a", std::span(three))); })), "f32 [2]"));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(parameter("a", std::span(wide))); })), "f64 [2]"));
}

TEST_CASE("a file that cannot be written or read is everybody's error") {
  for (const std::string& error : each_rank(3, [](Communicator& comm) { save_once(comm, "/nowhere/at/all", {}); }))
    CHECK(has(error, "cannot open /nowhere/at/all.new: No such file"));
  for (const std::string& error : each_rank(2, [](Communicator& comm) { load(comm, "/nowhere/at/all"); }))
    CHECK(has(error, "cannot open /nowhere/at/all: No such file"));
}

TEST_CASE("killed at any point of a save, the old or the new file is there") {
  const Folder folder;
  const std::string path = folder.file("net");
  constexpr std::size_t kCount = 5000;
  int now = 1;
  replace_file(path, numbered(now, kCount).serialize());
  for (const FileStep point :
       {FileStep::opened, FileStep::half_written, FileStep::written, FileStep::synced, FileStep::renamed}) {
    const auto next = numbered(now + 1, kCount).serialize();
    const pid_t child = ::fork();
    if (child == 0) {
      replace_file(path, next, [&](FileStep reached) {
        if (reached == point) ::kill(::getpid(), SIGKILL);
      });
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    const int expected = point == FileStep::renamed ? now + 1 : now;
    CHECK(number_of(load(path), kCount) == expected);
    replace_file(path, numbered(now = now + 1, kCount).serialize());  // over what the crash has left
    CHECK(number_of(load(path), kCount) == now);
  }
}

TEST_CASE("killed at random moments while it saves again and again, a whole file is there") {
  const Folder folder;
  const std::string path = folder.file("net");
  constexpr std::size_t kCount = 20000;
  replace_file(path, numbered(0, kCount).serialize());
  std::mt19937 engine(5);
  for (int round = 0; round < 12; ++round) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (int number = 0;; ++number) {
        replace_file(path, numbered(number, kCount).serialize());
        if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      }
    }
    char saved = 0;
    for (auto i = engine() % 4 + 1; i > 0; --i) REQUIRE(::read(ends[0], &saved, 1) == 1);
    for (auto i = engine() % 20000; i > 0; --i) saved = static_cast<char>(saved ^ static_cast<char>(i));
    ::kill(child, SIGKILL);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    ::close(ends[0]);
    ::close(ends[1]);
    CHECK(number_of(load(path), kCount) >= 0);
  }
}
