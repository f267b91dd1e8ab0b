// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rondo/trainer/checkpoint.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <stdexcept>

#include "tests/support/catch.hpp"
#include "tests/trainer/worlds.hpp"
#include "trainer/file.hpp"

namespace {

namespace fs = std::filesystem;
using rondo::Communicator;
using rondo::DataType;
using rondo::ErrorCode;
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

std::set<std::string> names_in(const Folder& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.file(""))) names.insert(entry.path().filename());
  return names;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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
          const Checkpoint loaded = load(folder.file("net"));
          loaded.get(model);
          loaded.get(state, "momentum.");
          if (weight[5] != 6 || momentum[5] != 0.25F || bias[0] != 0.1) throw std::runtime_error("values");
          if (loaded.texts.at("note") != "a \"quoted\"\nline") throw std::runtime_error("texts");
          const Checkpoint told = load(comm, folder.file("net"));
          if (told.tensors.size() != 4 || told.tensors.count("module.bias") != 1) throw std::runtime_error("keys");
        }) == no_errors(3));
}

TEST_CASE("a tensor that is missing or different is named") {
  std::vector<float> a = {1, 2};
  Checkpoint checkpoint;
  checkpoint.put(parameter("a", std::span(a)));
  std::vector<float> three(3);
  std::vector<double> wide(2);
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(parameter("b", std::span(a))); })), "no tensor 'b'"));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(parameter("a", std::span(three))); })), "F32 [2]"));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(parameter("a", std::span(wide))); })), "F64 [2]"));
}

TEST_CASE("a scalar is no tensor of one element, and a shape has the elements that it says") {
  float value = 2.5F;
  Parameter scalar = parameter("scale", std::span(&value, 1));
  Checkpoint checkpoint;
  scalar.shape.emplace();
  checkpoint.put(scalar);
  CHECK(checkpoint.tensors.at("scale").shape.empty());
  value = 0;
  Checkpoint::parse(checkpoint.serialize()).get(scalar);
  CHECK(value == 2.5F);
  scalar.shape.reset();
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(scalar); })),
            "'scale' is F32 [] in the checkpoint, but F32 [1] in the model"));
  scalar.shape = {2, 3};
  CHECK(has(sentence_of(thrown_by([&] { Checkpoint().put(scalar); })), "'scale' has 1 elements, not those of shape"));
  scalar.shape = {SIZE_MAX, 3};
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(scalar); })), "'scale' has 1 elements, not those of shape"));
}

TEST_CASE("no tensor takes the place of another, and none is renamed") {
  std::vector<float> one = {1}, two = {2}, three = {3}, got = {0};
  Checkpoint checkpoint;
  checkpoint.put(parameter("a", std::span(one)));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.put(parameter("a", std::span(two))); })),
            "'a' is in the checkpoint already"));
  checkpoint.put(parameter("module.a", std::span(two)));
  checkpoint.put(parameter("module.module.b", std::span(three)));
  const Checkpoint read = Checkpoint::parse(checkpoint.serialize());
  CHECK(read.tensors == checkpoint.tensors);
  const auto value_of = [&](const std::string& name) {
    read.get(parameter(name, std::span(got)));
    return got[0];
  };
  CHECK(value_of("a") == 1);
  CHECK(value_of("module.a") == 2);
  CHECK(value_of("module.b") == 3);  // one `module.` too few, as when Python's wrapped model was saved
  CHECK(value_of("module.module.b") == 3);
  CHECK(has(sentence_of(thrown_by([&] { value_of("b"); })), "no tensor 'b'"));
  checkpoint.put(parameter("module.module.module.a", std::span(three)));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.find("module.module.a"); })), "two that differ from it by module."));
}

TEST_CASE("what does not fit leaves every parameter as it was") {
  std::vector<float> a = {1}, b = {2};
  Checkpoint checkpoint;
  checkpoint.put(parameter("a", std::span(a)));
  a[0] = 5;
  const std::vector<Parameter> both = {parameter("a", std::span(a)), parameter("b", std::span(b))};
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(both); })), "no tensor 'b'"));
  CHECK(a[0] == 5);
}

TEST_CASE("memory that the CPU cannot reach is refused by name") {
  const std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // as a GPU's is
  REQUIRE(page != MAP_FAILED);
  const Parameter far{"w", page, nullptr, 2, DataType::f32, {}};
  std::vector<float> near(2);
  Checkpoint checkpoint;
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.put(far); })), "parameter 'w' are where the CPU cannot reach them"));
  checkpoint.put(parameter("w", std::span(near)));
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.get(far); })), "parameter 'w' are where the CPU cannot reach them"));
  CHECK(has(sentence_of(thrown_by([&] {
              checkpoint.get(Parameter{"w", nullptr, nullptr, 2, DataType::f32, {}});
            })),
            "cannot reach them"));
  ::munmap(page, bytes);
}

TEST_CASE("a name that is not UTF-8 is refused when it comes, not when a file is written") {
  std::vector<float> a = {1}, gradient = {0};
  Checkpoint checkpoint;
  CHECK(has(sentence_of(thrown_by([&] { checkpoint.put(parameter("w\xff", std::span(a))); })), "is not UTF-8"));
  CHECK(checkpoint.tensors.empty());
  for (const std::string& error : each_rank(2, [&](Communicator& comm) {
         GradientSynchronizer model(comm, {parameter("w\xff", std::span(a), std::span(gradient))});
       }))
    CHECK(has(error, "the parameter's name 'w\\ufffd' is not UTF-8"));
}

TEST_CASE("a file that rank 0 alone reaches, of many tensors and large ones, comes whole to every rank") {
  const Folder folder;
  Checkpoint checkpoint;
  std::mt19937 engine(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> bytes(i == 17 ? (std::size_t{150} << 20) : engine() % 50);
    for (std::size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 1000)
      bytes[at] = static_cast<std::byte>(engine());
    const std::size_t count = bytes.size();
    checkpoint.put(std::to_string(i), {"U8", {count}, std::move(bytes)});
  }
  CHECK(each_rank(3, [&](Communicator& comm) {
          save_once(comm, folder.file("net"), comm.rank() == 0 ? checkpoint : Checkpoint());
          const Checkpoint read = load(comm, folder.file("net"));
          if (read.tensors != checkpoint.tensors || !read.texts.empty()) throw std::runtime_error("values");
        }) == no_errors(3));
}

TEST_CASE("a file that cannot be written or read is everybody's error") {
  for (const std::string& error : each_rank(3, [](Communicator& comm) { save_once(comm, "/nowhere/at/all", {}); }))
    CHECK(has(error, "cannot make a file beside /nowhere/at/all: No such file"));
  for (const std::string& error : each_rank(2, [](Communicator& comm) { load(comm, "/nowhere/at/all"); }))
    CHECK(has(error, "cannot open /nowhere/at/all: No such file"));
  const Folder folder;
  CHECK(has(sentence_of(thrown_by([&] { load(folder.file("")); })), "it is not a regular file"));
  const std::vector<std::byte> no_checkpoint(20);
  replace_file(folder.file("net"), no_checkpoint);
  std::vector<ErrorCode> codes(2);
  const auto errors = each_rank(2, [&](Communicator& comm) {
    try {
      load(comm, folder.file("net"));
    } catch (const rondo::Error& error) {
      codes[static_cast<std::size_t>(comm.rank())] = error.error_code();
      throw;
    }
  });
  for (const std::string& error : errors) CHECK(has(error, "net: not a safetensors file"));
  CHECK(codes == std::vector<ErrorCode>(2, ErrorCode::corrupt_message));
}

TEST_CASE("what cannot be written leaves the old file and nothing beside it") {
  const Folder folder;
  const std::string path = folder.file("net");
  replace_file(path, numbered(1, 10).serialize());
  Checkpoint bad = numbered(2, 10);
  bad.texts["note"] = "\xff";
  for (const std::string& error : each_rank(2, [&](Communicator& comm) { save_once(comm, path, bad); }))
    CHECK(has(error, "is not UTF-8"));
  CHECK(number_of(load(path), 10) == 1);
  fs::create_directory(folder.file("taken"));
  CHECK(has(sentence_of(thrown_by([&] { replace_file(folder.file("taken"), numbered(2, 10).serialize()); })),
            "cannot rename to"));
  CHECK(names_in(folder) == std::set<std::string>{"net", "taken"});
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
    replace_file(path, numbered(now = now + 1, kCount).serialize());  // what the crash has left goes
    CHECK(number_of(load(path), kCount) == now);
    CHECK(names_in(folder) == std::set<std::string>{"net"});
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

TEST_CASE("of two that save to one path at the same time each writes a whole file, and the last one's stays") {
  const Folder folder;
  const std::string path = folder.file("net");
  constexpr std::size_t kCount = 5000;
  const auto inner = numbered(2, kCount).serialize();
  for (const FileStep point : {FileStep::opened, FileStep::half_written, FileStep::written, FileStep::synced}) {
    const auto outer = numbered(1, kCount).serialize();
    replace_file(path, outer, [&](FileStep reached) {
      if (reached != point) return;
      replace_file(path, inner);
      CHECK(number_of(load(path), kCount) == 2);
    });
    CHECK(number_of(load(path), kCount) == 1);
    CHECK(names_in(folder) == std::set<std::string>{"net"});
  }
}

TEST_CASE("jobs that save to one path again and again: whoever reads finds a whole file, and nothing else stays") {
  const Folder folder;
  const std::string path = folder.file("net");
  constexpr std::size_t kCount = 20000;
  constexpr int kJobs = 4, kSaves = 20;
  replace_file(path, numbered(0, kCount).serialize());
  std::vector<pid_t> children;
  for (int job = 1; job <= kJobs; ++job) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    int code = 0;
    for (int save = 0; save < kSaves && code == 0; ++save) {
      try {
        replace_file(path, numbered(job, kCount).serialize());
        if (number_of(load(path), kCount) < 0) code = 2;
      } catch (const std::exception&) {
        code = 1;
      }
    }
    ::_exit(code);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(number_of(load(path), kCount) >= 1);
  CHECK(names_in(folder) == std::set<std::string>{"net"});
}

TEST_CASE("a name as long as names may be can be saved to") {
  const Folder folder;
  const std::string path = folder.file(std::string(255, 'n'));
  replace_file(path, numbered(1, 10).serialize());
  CHECK(number_of(load(path), 10) == 1);
}
