// SPDX-License-Identifier: Apache-2.0
// What this process is called by ps, pkill and killall: its name, and the words of its command line.
#pragma once

namespace rondo::process {

// Once, in a child that needs its arguments no more. A kernel that does not say where they lie keeps the words.
void set_title(const char* title);
// In a child of that one: what both were called before.
void reset_title();

}  // namespace rondo::process
