// SPDX-License-Identifier: Apache-2.0
// Verbs that return before they are through take no container that goes at the end of the line; views and named ones
// they do. Blocking verbs take both.
#include <array>
#include <deque>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include <rondo/communicator.hpp>

#include "tests/support/catch.hpp"

using namespace rondo;

namespace {

struct Part {  // a view of the user's own
  int* first;
  std::size_t count;
  int* begin() const { return first; }
  int* end() const { return first + count; }
};

}  // namespace

template <>
inline constexpr bool std::ranges::enable_borrowed_range<Part> = true;

namespace {

using Ints = std::vector<int>;
using Four = std::array<int, 4>;
using View = std::span<int>;
using ConstView = std::span<const int>;

// The verbs, each with its two buffers, or one.
#define RONDO_VERB(name, ...)                            \
  template <class Who, class S, class R>                 \
  concept name = requires(Who who, S && from, R && to) { \
    who.__VA_ARGS__;                                     \
  }
RONDO_VERB(InPlace, all_reduce(std::forward<R>(to), ReduceOp::sum));
RONDO_VERB(Reduces, all_reduce(std::forward<S>(from), std::forward<R>(to), ReduceOp::sum));
RONDO_VERB(ReducesTo, reduce(std::forward<S>(from), std::forward<R>(to), ReduceOp::sum, 0));
RONDO_VERB(Broadcasts, broadcast(std::forward<R>(to), 0));
RONDO_VERB(AllGathers, all_gather(std::forward<S>(from), std::forward<R>(to)));
RONDO_VERB(ReduceScatters, reduce_scatter(std::forward<S>(from), std::forward<R>(to), ReduceOp::sum));
RONDO_VERB(AllToAlls, all_to_all(std::forward<S>(from), std::forward<R>(to)));
RONDO_VERB(Gathers, gather(std::forward<S>(from), std::forward<R>(to), 0));
RONDO_VERB(Scatters, scatter(std::forward<S>(from), std::forward<R>(to), 0));
RONDO_VERB(Sends, send(std::forward<S>(from), 0));
RONDO_VERB(Receives, recv(std::forward<R>(to), 0));
#undef RONDO_VERB

template <class Who, class S>
constexpr bool takes_from =
    Reduces<Who, S, Ints&>&& ReducesTo<Who, S, Ints&>&& AllGathers<Who, S, Ints&>&& ReduceScatters<Who, S, Ints&>&&
        AllToAlls<Who, S, Ints&>&& Gathers<Who, S, Ints&>&& Scatters<Who, S, Ints&>&& Sends<Who, S, Ints&>;
template <class Who, class R>
constexpr bool takes_to = InPlace<Who, Ints&, R>&& Reduces<Who, Ints&, R>&& ReducesTo<Who, Ints&, R>&&
    Broadcasts<Who, Ints&, R>&& AllGathers<Who, Ints&, R>&& ReduceScatters<Who, Ints&, R>&& AllToAlls<Who, Ints&, R>&&
        Gathers<Who, Ints&, R>&& Scatters<Who, Ints&, R>&& Receives<Who, Ints&, R>;
template <class Who, class S>
constexpr bool takes_any_from =
    Reduces<Who, S, Ints&> || ReducesTo<Who, S, Ints&> || AllGathers<Who, S, Ints&> || ReduceScatters<Who, S, Ints&> ||
    AllToAlls<Who, S, Ints&> || Gathers<Who, S, Ints&> || Scatters<Who, S, Ints&> || Sends<Who, S, Ints&>;
template <class Who, class R>
constexpr bool takes_any_to =
    InPlace<Who, Ints&, R> || Reduces<Who, Ints&, R> || ReducesTo<Who, Ints&, R> || Broadcasts<Who, Ints&, R> ||
    AllGathers<Who, Ints&, R> || ReduceScatters<Who, Ints&, R> || AllToAlls<Who, Ints&, R> || Gathers<Who, Ints&, R> ||
    Scatters<Who, Ints&, R> || Receives<Who, Ints&, R>;

template <class Who>
constexpr bool keeps_what_lasts = takes_from<Who, Ints&>&& takes_from<Who, const Ints&>&& takes_from<Who, Four&>&&
    takes_from<Who, View>&& takes_from<Who, ConstView>&& takes_from<Who, int (&)[4]>&& takes_from<Who, Part>&&
        takes_to<Who, Ints&>&& takes_to<Who, Four&>&& takes_to<Who, View>&& takes_to<Who, const View&>&&
            takes_to<Who, int (&)[4]>&& takes_to<Who, Part>;
template <class Who>
constexpr bool refuses_what_goes = !takes_any_from<Who, Ints> && !takes_any_from<Who, const Ints> &&
                                   !takes_any_from<Who, Four> && !takes_any_to<Who, Ints> && !takes_any_to<Who, Four>;

static_assert(keeps_what_lasts<Communicator&> && keeps_what_lasts<Async> && keeps_what_lasts<Group&>);
static_assert(refuses_what_goes<Async> && refuses_what_goes<Async&> && refuses_what_goes<Group&>);
static_assert(takes_from<Communicator&, Ints> && takes_from<Communicator&, Four>);
static_assert(!takes_any_to<Group&, const Ints&> && !takes_any_from<Group&, std::deque<int>&>);

}  // namespace

TEST_CASE("buffers that last are kept, those of a temporary do not compile") {
  auto ranks = Communicator::local(1);
  const std::array mine{3};
  Four to{};
  auto group = ranks[0].group();
  group.all_gather(std::span(mine), std::span(to).first(1));
  group.end();
  ranks[0].async().broadcast(View(to), 0).wait();
  CHECK(to[0] == 3);
}
