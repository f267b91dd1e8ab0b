// SPDX-License-Identifier: Apache-2.0
// Lines of many processes into one stream, each whole and with a prefix. Runs on the event loop alone.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/fd.hpp"
#include "runtime/process/event_loop.hpp"

namespace rondo::launcher {

// The launcher's stdout or stderr: a queue that is written as fast as its reader takes it, without blocking the loop.
class Sink {
 public:
  Sink(process::EventLoop& loop, int fd);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return fd_; }
  bool colored() const { return colored_; }
  bool full() const;
  bool empty() const { return written_ == queue_.size(); }
  bool closed() const { return closed_; }  // nobody reads any more

  void line(std::string_view prefix, std::string_view text);  // text without its newline
  void flush();                                               // as much as there is room for
  // `wake` is called when there is room again, or nobody reads any more.
  void when_room(std::function<void()> wake) { waiting_.push_back(std::move(wake)); }

 private:
  bool write_some();
  std::size_t portion() const;
  void wake();

  process::EventLoop& loop_;
  int fd_;
  bool colored_, regular_, closed_ = false, watched_ = false;
  std::string queue_;  // whole lines; the first written_ bytes are out
  std::size_t written_ = 0;
  std::vector<std::function<void()>> waiting_;
};

// One stream of one rank.
class Source {
 public:
  struct Handling {
    std::string prefix;
    bool shown = true;  // in `sink`
    bool kept = false;  // if not shown: its last part, for show_last()
    Fd log{};           // a file for the bytes as they are, if any
  };
  // Reads from `pipe`, which must not block.
  Source(process::EventLoop& loop, Fd pipe, Handling handling, Sink& sink);
  ~Source();
  void drain();      // everything that is there; at the end of the rank
  void finish();     // and its last line, also without a newline
  void show_last();  // the end of what was kept

 private:
  void readable();
  std::size_t read_some();  // bytes; 0: nothing there, or the end
  void take(std::string_view text);
  void keep(std::string_view text);
  void log(std::string_view text);
  void close();

  process::EventLoop& loop_;
  Fd pipe_;
  Handling handling_;
  std::string partial_, kept_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // the sink may wake one that is gone
  Sink& sink_;
};

}  // namespace rondo::launcher
