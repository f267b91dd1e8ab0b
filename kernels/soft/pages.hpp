// SPDX-License-Identifier: Apache-2.0
// Whole pages, which is what is mapped and guarded.
#pragma once
#include <cstddef>

namespace rondo::soft {

inline constexpr std::size_t kPage = 4096;
constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace rondo::soft
