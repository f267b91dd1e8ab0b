// SPDX-License-Identifier: Apache-2.0
// What fork() leaves behind.
#pragma once

namespace rondo::process {

// Of this process, the calling one aside. One that has just been joined may take the kernel a moment to forget: where
// there seem to be any, this waits up to half a second for them to go. 0 where /proc is not there.
int count_other_threads();

}  // namespace rondo::process
