// SPDX-License-Identifier: Apache-2.0
// A rank that tells the others the same words in every way there is: a value in the store, data, and a message.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

std::vector<char> words_about(const std::string& what) {
  std::string text;
  while (text.size() < 50'000) text += "confided as " + what + ". ";
  return {text.begin(), text.end()};
}

void check(const std::vector<char>& heard, const std::string& what) {
  if (heard != words_about(what)) throw std::logic_error("wrong words as " + what);
}

void confide(rondo::Communicator& comm, rondo::Store& store) {
  using namespace std::chrono_literals;
  const bool tells = comm.rank() == 0;
  const auto value = words_about("a value");
  if (tells) store.set("words", std::as_bytes(std::span(value)));
  const auto heard = store.get("words", std::chrono::steady_clock::now() + 20s);
  const auto* letters = reinterpret_cast<const char*>(heard.data());
  check({letters, letters + heard.size()}, "a value");

  auto data = words_about("data");
  if (!tells) data.assign(data.size(), ' ');
  comm.broadcast(std::span(data), 0);
  check(data, "data");

  auto message = words_about("a message");
  if (!tells) message.assign(message.size(), ' ');
  if (tells) {
    for (int peer = 1; peer < comm.world_size(); ++peer) comm.send(std::span<const char>(message), peer);
  } else {
    comm.recv(std::span(message), 0);
  }
  check(message, "a message");
  comm.barrier();
}

}  // namespace

int main() {
  try {
    auto comm = rondo::Communicator::from_environment();
    const auto store = rondo::open_store();
    confide(comm, *store);
    std::puts("done");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
