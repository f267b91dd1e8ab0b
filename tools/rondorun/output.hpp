// SPDX-License-Identifier: Apache-2.0
// Lines of many processes into one stream, each whole and with a prefix. Runs on the event loop alone.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/fd.hpp"
#include "runtime/process/event_loop.hpp"
#include "tools/rondorun/fold.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/screen.hpp"
#include "tools/rondorun/screen_text.hpp"
#include "tools/rondorun/terminal.hpp"

namespace rondo::launcher {

class Source;

// The launcher's stdout or stderr: a queue that is written as fast as its reader takes it, without blocking the loop.
// On a terminal the sources' unfinished lines stand below the others, drawn anew a few times a second at most.
class Sink {
 public:
  using Clock = process::EventLoop::Clock;
  Sink(process::EventLoop& loop, int fd, Color color);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return fd_; }
  bool colored() const { return colored_; }
  bool full() const;
  bool empty() const { return all_written() && lines_.empty() && held_.empty(); }
  std::size_t lines() const { return line_count_; }  // so far
  bool closed() const { return closed_; }            // nobody reads any more
  // Called once, with the error's number, when what is there cannot be written (a full disk): from then on what does
  // not fit is left out.
  void when_left_out(std::function<void(int reason)> handler) { left_out_ = std::move(handler); }
  bool is_terminal() const { return screen_.has_value(); }
  bool draws() const { return screen_ && screen_->draws(); }                       // it is one whose cursor can go up
  void show_below(std::vector<std::string> rows) { own_rows_ = std::move(rows); }  // all lines, on such a one

  void line(std::string_view prefix, std::string_view text);  // text without its newline
  // What ranks write is held back for a moment; in a job that fails what several of them say is said once. line() is
  // not.
  void hold();
  void release();
  void fold(bool folds) { folds_ = folds; }
  void line_of_rank(int rank, bool folds, std::string_view prefix, std::string_view text);
  void flush();       // as much as there is room for
  void flush_soon();  // when all that has come by now is in
  // `wake` is called when there is room again, or nobody reads any more.
  void when_room(std::function<void()> wake) { waiting_.push_back(std::move(wake)); }
  // Whose unfinished lines are shown on a terminal, from above to below.
  void add(const Source& source) { sources_.push_back(&source); }
  void remove(const Source& source) { std::erase(sources_, &source); }

 private:
  void compose();
  void compose_frame(Clock::time_point now);
  void compose_at(Clock::time_point time);
  std::optional<Clock::time_point> first_row_due() const;
  bool all_written() const { return written_ == queue_.size(); }
  bool write_some();
  std::size_t portion() const;
  void wake();

  process::EventLoop& loop_;
  Fd own_;  // the terminal opened once more, so that we alone do not wait for it; none: it may not be
  int fd_;
  bool colored_, regular_, closed_ = false, watched_ = false, flushes_soon_ = false, told_left_out_ = false;
  std::optional<Screen> screen_;  // of a terminal
  Clock::duration between_frames_;
  Clock::time_point last_frame_{};
  std::optional<Clock::time_point> timer_;
  std::vector<const Source*> sources_;
  std::vector<std::string> own_rows_;  // above those of the sources
  std::size_t line_count_ = 0;
  Fold held_;
  bool holds_ = false, folds_ = false;
  std::string lines_;  // for the next frame of the screen
  std::string queue_;  // whole lines; the first written_ bytes are out
  std::size_t written_ = 0;
  std::vector<std::function<void()>> waiting_;
  std::function<void(int)> left_out_;
};

// One stream of one rank.
class Source {
 public:
  struct Handling {
    std::string prefix;
    int rank = 0;
    bool folds = false;                                  // its lines, with the same ones of other ranks
    int prefix_width = 0;                                // columns of a terminal
    bool shown = true;                                   // in `sink`
    bool shown_at_end = false;                           // if not shown: its last part, by show_last()
    Fd log{};                                            // a file for the bytes as they are, if any
    std::function<void(int reason)> log_ends{};          // when it takes no more
    std::function<bool(std::string_view line)> takes{};  // true: this line is not for the sink
  };
  // Reads from `pipe`, a pipe or a terminal, which must not block.
  Source(process::EventLoop& loop, Fd pipe, Handling handling, Sink& sink);
  ~Source();
  void drain();      // everything that is there; at the end of the rank
  void finish();     // and its last line, also without a newline
  void show_last();  // the last words, unless all has been shown
  const std::string& last_words() const { return kept_; }
  std::vector<std::string> last_lines() const;  // a few, whole and as they are seen
  void follow_size();                           // of the sink's terminal, if this is one as well

  bool has_more() const;  // there is something to read

  // On a terminal, of the unfinished line: when it is to be seen, if it is; and what of it.
  std::optional<Sink::Clock::time_point> row_due() const { return row_due_; }
  std::string row() const { return handling_.prefix + on_screen_.row(); }
  bool row_is_drawn_over() const { return on_screen_.drawn_over(); }

 private:
  void readable();
  std::size_t read_some();  // bytes; 0: nothing there, or the end
  void line(std::string_view text) {
    if (handling_.takes && handling_.takes(text)) return;
    sink_.line_of_rank(handling_.rank, handling_.folds, handling_.prefix, text);
  }
  void take(std::string_view text);
  void take_on_screen(std::string_view text);
  void keep(std::string_view text);
  void log(std::string_view text);
  void close();

  process::EventLoop& loop_;
  Fd pipe_;
  bool is_terminal_;
  Handling handling_;
  std::string partial_, kept_;
  ScreenText on_screen_;  // on a terminal, instead of partial_
  std::optional<Sink::Clock::time_point> row_due_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // the sink may wake one that is gone
  Sink& sink_;
};

}  // namespace rondo::launcher
