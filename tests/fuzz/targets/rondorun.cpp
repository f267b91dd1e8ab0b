// SPDX-License-Identifier: Apache-2.0
// What rondorun reads: hosts to start ranks on, and what its ranks draw on their screens.
#include <algorithm>
#include <set>
#include <sstream>

#include <rondo/error.hpp>

#include "tests/fuzz/targets.hpp"
#include "tools/rondorun/fold.hpp"
#include "tools/rondorun/hosts.hpp"
#include "tools/rondorun/order.hpp"
#include "tools/rondorun/screen_text.hpp"

namespace rondo::fuzz {

using namespace launcher;

namespace {

// Hosts that are written out are the same again, and nothing of them is a flag of ssh's.
void check(const std::vector<FarHost>& hosts) {
  std::set<std::string> logins;
  std::string list;
  for (const FarHost& host : hosts) {
    expect(!host.name().empty() && !host.login.starts_with('-') && !host.name().starts_with('-'), "no host, or a flag");
    expect(logins.insert(host.login).second, "a host is there twice");
    const std::string user = host.login.substr(0, host.login.size() - host.name().size());
    const bool in_brackets = host.name().find(':') != std::string::npos;
    list += (list.empty() ? "" : ",") + user + (in_brackets ? "[" + host.name() + "]" : host.name()) + ":" + host.ranks;
  }
  const auto again = hosts_of_list(list, "cpu");
  const auto same = [](const FarHost& a, const FarHost& b) { return a.login == b.login && a.ranks == b.ranks; };
  expect(std::ranges::equal(hosts, again, same), "other hosts than were written: " + list);
}

}  // namespace

void run_ssh_hosts(Bytes input) {
  std::vector<FarHost> hosts;
  if (accepts([&] { hosts = hosts_of_list(text_of(input), "auto"); })) check(hosts);
}

std::vector<std::string> ssh_hosts_seeds() {
  return {"a:4,user@b,[fd00::1]:2", "a:2,a:3,u@[::1]", "localhost:gpu,b:cpu,c:auto", "u:v@h"};
}

void run_hostfile(Bytes input) {
  std::vector<FarHost> hosts;
  std::istringstream lines(text_of(input));
  if (accepts([&] { hosts = hosts_in(lines, "FILE", "auto"); })) check(hosts);
}

std::vector<std::string> hostfile_seeds() {
  return {"a\nb:4 # comment\n\nuser@c slots=2 max_slots=4\n[fd00::1]:2", "a 4 all.q@a UNDEFINED\nb 2\na 1\n"};
}

// As a terminal would: the same whatever pieces it comes in, and no line holds what moves the cursor.
void run_screen(Bytes input) {
  Script script(input);
  const std::size_t piece = 1 + script.byte();
  const std::string text = text_of(script.rest());
  const auto lines_of = [&](std::size_t size) {
    std::vector<std::string> lines;
    const auto note = [&](std::string_view line) { lines.emplace_back(line); };
    ScreenText screen;
    for (std::size_t from = 0; from < text.size(); from += size)
      screen.take(std::string_view(text).substr(from, size), note);
    expect(screen.has_row() == !screen.row().empty(), "a row is there and empty");
    screen.finish(note);
    return lines;
  };
  const auto lines = lines_of(piece);
  expect(lines == lines_of(std::max<std::size_t>(1, text.size())), "pieces change what is seen");
  Fold fold;
  for (std::size_t i = 0; i < lines.size(); ++i)
    fold.add(static_cast<int>(i % 3), "[" + std::to_string(i % 3) + "] ", lines[i]);
  std::size_t told = 0;
  fold.release(true, [&](std::string_view, std::string_view) { ++told; });
  expect(told <= lines.size() && (told > 0 || lines.empty()), "folding adds lines, or takes all");
}

std::vector<std::string> screen_seeds() {
  return {"\x10one\ntwo\r\nthree", "\x01\x1b[31mred\x1b[0m\rblack\n", "\x02 50%|###  |\r 60%|#### |\r100%\n",
          "\x05\x1b]0;title\x07text\x1b[2Kmore\x1b[1A\x08\x08"};
}

// What comes on the standard input of a rondorun that was started by ssh.
void run_order(Bytes input) {
  const auto read = [](std::string_view text) {
    const auto colon = text.find(':');
    const auto size = text.substr(0, colon == text.npos ? colon : colon + 1);
    const std::size_t bytes = order_bytes(size);
    if (bytes > text.size() - size.size()) throw Error(ErrorCode::peer_lost, "it ends before the order is there");
    return order_of(text.substr(size.size(), bytes));
  };
  Order order;
  if (!accepts([&] { order = read(as_text(input)); })) return;
  const Order again = read(order_text(order));
  expect(again.version == order.version && again.secret == order.secret && again.folder == order.folder &&
             again.environment == order.environment && again.words == order.words,
         "another order than was given");
  for (const std::string& entry : order.environment)
    expect(entry.find('=') - 1 < entry.size(), "no variable: " + entry);
}

std::vector<std::string> order_seeds() {
  const std::string whole = order_text({.version = "1",
                                        .secret = "ab",
                                        .folder = "/tmp",
                                        .environment = {"A=b", "C="},
                                        .words = {"--np", "2", "", "x"}});
  return {whole, order_text({})};
}

}  // namespace rondo::fuzz
