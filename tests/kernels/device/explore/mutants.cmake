# SPDX-License-Identifier: Apache-2.0
# Planted bugs, one a row: the kernel that has it, who must find it within how many seeds, the file, its text and what
# stands there instead. schedules: exploration, by wrong data, a deadlock, a named misuse or a fault; in every preset but
# those with sanitizers. races: exploration under ThreadSanitizer, in the preset tsan; no schedule shows these on x86.

# ---- Simple

rondo_mutant(flag_before_data simple schedules 200 kernels/device/progress.cuh
  "    if (block_or(!move_round<P>(block, round))) break;"
  "    if (thread < round.slices && round.slice[thread].to_slot != nullptr) {
      P::post(&peer_mailbox(block, round.slice[thread].to).posted, round.slice[thread].to_step);
    }
    if (block_or(!move_round<P>(block, round))) break;")

rondo_mutant(release_missing simple races 200 kernels/device/simple.cuh
  "{ store_release(word, step + 1); }"
  "{ store_relaxed(word, step + 1); }")

rondo_mutant(acquire_missing simple races 200 kernels/device/progress.cuh
  "const std::uint64_t seen = load_acquire(word);"
  "const std::uint64_t seen = load_relaxed(word);")

rondo_mutant(credit_relaxed simple races 200 kernels/device/progress.cuh
  "give_credit(&peer_mailbox(block, slice.from).freed, slice.from_step + 1);"
  "store_relaxed(&peer_mailbox(block, slice.from).freed, slice.from_step + 1);")

rondo_mutant(data_posted_as_credit simple races 200 kernels/device/simple.cuh
  "{ store_release(word, step + 1); }"
  "{ give_credit(word, step + 1); }")

rondo_mutant(credit_read_relaxed simple races 200 kernels/device/progress.cuh
  "link.freed = load_credit(word);"
  "link.freed = load_relaxed(word);")

rondo_mutant(kept_credit_read_relaxed simple races 500 kernels/device/fifo_kernel.cuh
  "link.freed = load_credit(&mailbox_at(link.mine).freed);"
  "link.freed = load_relaxed(&mailbox_at(link.mine).freed);")

rondo_mutant(kept_credit_is_what_was_sent simple schedules 200 kernels/device/fifo_kernel.cuh
  "store<std::uint64_t>(&mailbox_at(link.mine).seen_freed, link.freed);"
  "store<std::uint64_t>(&mailbox_at(link.mine).seen_freed, link.sent);")

rondo_mutant(no_credit simple schedules 200 kernels/device/progress.cuh
  "  if (link.sent - link.freed < block.slots) return true;
  const std::uint64_t* word = &mailbox_at(link.mine).freed;"
  "  if (link.sent + 1 != 0) return true;
  const std::uint64_t* word = &mailbox_at(link.mine).freed;")

rondo_mutant(credit_off_by_one simple schedules 500 kernels/device/progress.cuh
  "  link.freed = load_credit(word);
  if (link.sent - link.freed < block.slots) return true;"
  "  link.freed = load_credit(word);
  if (link.sent - link.freed <= block.slots) return true;")

rondo_mutant(steps_wrap simple schedules 200 kernels/device/progress.cuh
  "  link.posted = P::posted(seen, link.received);
  if (link.posted > link.received) return true;"
  "  link.posted = P::posted(seen, link.received);
  if (static_cast<std::uint32_t>(link.posted) > static_cast<std::uint32_t>(link.received)) return true;")

rondo_mutant(no_barrier_after_wait simple schedules 200 kernels/device/progress.cuh
  "if (block_or(chooses && !choose_round<P>(block, block.round[turn], moves, true))) break;"
  "if (chooses && !choose_round<P>(block, block.round[turn], moves, true)) break;")

rondo_mutant(divergent_barrier simple schedules 20 kernels/device/progress.cuh
  "    if (block_or(!move_round<P>(block, round))) break;"
  "    const bool idle = thread * 16 >= round.slice[0].bytes;
    if (idle ? block_or(false)
             : block_or(!move_round<P>(block, round))) break;")

rondo_mutant(early_credit simple schedules 500 kernels/device/progress.cuh
  "    if (block_or(!move_round<P>(block, round))) break;"
  "    const bool moved = move_round<P>(block, round);
    if (thread < round.slices && round.slice[thread].from_slot != nullptr) {
      give_credit(&peer_mailbox(block, round.slice[thread].from).freed, round.slice[thread].from_step + 1);
    }
    if (block_or(!moved)) break;")

rondo_mutant(round_chosen_over_another simple schedules 200 kernels/device/progress.cuh
  "turn = turn == 2 ? 0 : turn + 1;"
  "turn = turn % 3;")

rondo_mutant(two_rounds_in_turn simple schedules 500 kernels/device/progress.cuh
  "turn = turn == 2 ? 0 : turn + 1;"
  "turn = turn == 1 ? 0 : turn + 1;")

rondo_mutant(round_followed_by_guess simple schedules 500 kernels/device/progress.cuh
  "chosen = round.is_followed;"
  "chosen = round.goes_on && block.round[turn].slices != 0;")

rondo_mutant(messages_overtake simple schedules 500 kernels/device/progress.cuh
  "if (same) active.behind |= std::uint32_t{1} << i;"
  "if (same) active.behind &= std::uint32_t{1} << i;")

rondo_mutant(threads_of_roles_left_out simple schedules 500 kernels/device/progress.cuh
  "Crew crew{thread_index() - roles, block_threads() - roles};"
  "Crew crew{thread_index(), block_threads()};")

rondo_mutant(empty_chunk_travels simple schedules 200 kernels/device/primitives.cuh
  "active.finished = move.count == 0;"
  "active.finished = move.count == 0 && move.to == kNobody;")

rondo_mutant(empty_message_not_sent simple schedules 500 kernels/device/fifo_kernel.cuh
  "if (share.count == 0 && channel != 0) continue;"
  "if (share.count == 0 && (channel != 0 || message.sends)) continue;")

# ---- LL and LL128

rondo_mutant(ll_stale_line ll schedules 200 kernels/device/ll.cuh
  "return (step & 0x7fffffffu) | 0x80000000u;"
  "return (step & 1u) | 0x80000000u;")

rondo_mutant(ll_one_flag ll schedules 200 kernels/device/ll.cuh
  "return line.x >> 32 == flag && line.y >> 32 == flag;"
  "return line.x >> 32 == flag;")

rondo_mutant(ll_flag_wraps ll schedules 200 kernels/device/ll.cuh
  "return (step & 0x7fffffffu) | 0x80000000u;"
  "return (step + 1) & 0xffffffffu;")

rondo_mutant(ll_early_credit ll schedules 500 kernels/device/progress.cuh
  "    if (block_or(!move_round<P>(block, round))) break;"
  "    const bool moved = move_round<P>(block, round);
    if (thread < round.slices && round.slice[thread].from_slot != nullptr) {
      give_credit(&peer_mailbox(block, round.slice[thread].from).freed, round.slice[thread].from_step + 1);
    }
    if (block_or(!moved)) break;")

rondo_mutant(ll_waits_before_it_sends ll schedules 500 kernels/device/progress.cuh
  "bits_of(sends & below) : bits_of(sends | (ready & below))"
  "bits_of(ready & ~sends) + bits_of(sends & below) : bits_of(ready & ~sends & below)")

rondo_mutant(ll128_lanes_leave_singly ll128 schedules 200 kernels/device/ll128.cuh
  "      if (!warp_any(missing)) {
        lines_have_come();"
  "      if (!missing) {
        lines_have_come();")

rondo_mutant(ll_fold_waits_for_first_ranks ll schedules 500 kernels/device/ll.cuh
  "for (int first = 0, waits_for = kNobody; first < block.world_size;) {"
  "for (int first = 0, waits_for = kNobody; first < kBatch;) {")

rondo_mutant(ll128_fold_waits_for_first_ranks ll128 schedules 500 kernels/device/ll128.cuh
  "for (int first = 0, waits_for = kNobody; first < block.world_size;) {"
  "for (int first = 0, waits_for = kNobody; first < kBatch;) {")

# ---- windows

rondo_mutant(one_line_for_all_epochs window schedules 200 kernels/device/window_meet.cuh
  "team.layout.arrival_offset(epoch, "
  "team.layout.arrival_offset(0, ")

rondo_mutant(older_epoch_accepted window schedules 200 kernels/device/window_meet.cuh
  "{ return seen == epoch; }"
  "{ return seen + 2 >= epoch; }")

rondo_mutant(arrival_relaxed window races 200 kernels/device/window_meet.cuh
  "store_release(&line->epoch, arrival.epoch);"
  "store_relaxed(&line->epoch, arrival.epoch);")

rondo_mutant(second_arrival_relaxed window races 200 kernels/device/window_meet.cuh
  "store_release(word, epoch);"
  "store_relaxed(word, epoch);")

rondo_mutant(ending_credit_relaxed window races 200 kernels/device/window_meet.cuh
  "give_credit(word, epoch);"
  "store_relaxed(word, epoch);")

rondo_mutant(ending_credit_read_relaxed window races 200 kernels/device/wait.cuh
  "{ return load_credit(word); };"
  "{ return load_relaxed(word); };")

rondo_mutant(outputs_of_others_ended_by_credit window races 200 kernels/device/window.cuh
  "plan_.writes == Writes::own ? Since::read : Since::wrote,"
  "Since::read,")

rondo_mutant(outputs_of_root_ended_by_credit window races 500 kernels/device/window.cuh
  "plan_.writes == Writes::own ? Since::read : Since::wrote,"
  "plan_.writes != Writes::all ? Since::read : Since::wrote,")

rondo_mutant(round_begun_by_credit window races 500 kernels/device/window.cuh
  "meet_again(block_, epoch(round), Since::wrote, Since::wrote)"
  "meet_again(block_, epoch(round), Since::read, Since::wrote)")

rondo_mutant(wait_relaxed window races 200 kernels/device/wait.cuh
  "{ return load_acquire(word); };"
  "{ return load_relaxed(word); };")

rondo_mutant(meeting_without_first_barrier window schedules 200 kernels/device/window_meet.cuh
  "  block_sync();
  RONDO_NO_UNROLL
  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    if (peer == team.rank) continue;
    std::uint64_t* const word"
  "  for (int peer = static_cast<int>(thread_index()); peer < team.world_size; peer += static_cast<int>(block_threads())) {
    if (peer == team.rank) continue;
    std::uint64_t* const word")

rondo_mutant(staged_input_met_without_barrier window races 500 kernels/device/window_meet.cuh
  "  if (wrote) block_sync();
"
  "")

rondo_mutant(planned_over_the_operation_before window races 500 kernels/device/window.cuh
  "    block_sync();  // the operation before is over for all threads
"
  "")

rondo_mutant(plan_is_known_with_moves_alone window schedules 500 kernels/device/window.cuh
  "if (list.moves == 0 && !decided) return;"
  "if (list.moves == 0) return;")

rondo_mutant(meeting_without_last_barrier window schedules 200 kernels/device/window_meet.cuh
  "    block.rounds[peer] = theirs.rounds;
  }
  RONDO_STAMP(seen);
  return !block_or(!met);"
  "    block.rounds[peer] = theirs.rounds;
  }
  return met;")

rondo_mutant(staging_has_one_half window schedules 200 kernels/device/window.cuh
  "(2 * std::uint64_t{block_index()} + (parity & 1)) * plan_.half_bytes"
  "(2 * std::uint64_t{block_index()}) * plan_.half_bytes")

rondo_mutant(one_shot_in_place_is_shared window schedules 200 kernels/device/window.cuh
  "operation_.send_window >= 0 && !(plan_.cut == Cut::whole && operation_.input == operation_.output)"
  "operation_.send_window >= 0")

rondo_mutant(no_second_meeting window schedules 200 kernels/device/window.cuh
  "if (is_read(rank) && block_.input[rank] != nullptr) ends_together = true;"
  "")

# ---- sums over windows

rondo_mutant(sum_opened_by_one_word window_sum schedules 200 kernels/device/window_sum.cuh
  "return (line.x & kOpeningFlag) == flags.first && (line.y & kOpeningFlag) == flags.second;"
  "return (line.x & kOpeningFlag) == flags.first;")

rondo_mutant(sum_opening_without_epoch window_sum schedules 200 kernels/device/window_sum.cuh
  "(static_cast<std::uint32_t>(epoch) >> 1 & 7u) << 1 | 1u;"
  "1u;")

rondo_mutant(sum_opening_of_fresh_memory window_sum schedules 500 kernels/device/window_sum.cuh
  "(static_cast<std::uint32_t>(epoch) >> 1 & 7u) << 1 | 1u;"
  "(static_cast<std::uint32_t>(epoch) >> 1 & 7u) << 1;")

rondo_mutant(sum_opens_in_one_place window_sum schedules 500 kernels/device/window_sum.cuh
  "static_cast<unsigned>(counts_.openings & 1)"
  "0u")

rondo_mutant(sum_opens_what_it_staged window_sum schedules 200 kernels/device/window_sum.cuh
  "turn.open(false);"
  "turn.open(true);")

rondo_mutant(sum_opens_what_it_wrote_before window_sum schedules 200 kernels/device/window_sum.cuh
  "run(alive, !met);"
  "run(alive, true);")

rondo_mutant(sum_met_without_barrier window_sum schedules 200 kernels/device/window_sum.cuh
  "if (block_or(!met || staged)) return"
  "if (!met || staged) return")

rondo_mutant(sum_staged_output_unseen window_sum schedules 200 kernels/device/window_sum.cuh
  "staged = staged || sent == kNoPlace || kept == kNoPlace;"
  "staged = staged || sent == kNoPlace;")

rondo_mutant(sum_not_closed window_sum schedules 200 kernels/device/window_sum.cuh
  "if (launch_.ranks == 1) return counts_.epoch + 1;"
  "if (launch_.ranks != 0) return counts_.epoch + 1;")

rondo_mutant(sum_closed_without_barrier window_sum schedules 500 kernels/device/window_sum.cuh
  "    block_sync();
    for_my_peers("
  "    for_my_peers(")

rondo_mutant(sum_loaded_is_every_column window_sum schedules 200 kernels/device/window_move.cuh
  "at.source == loaded.source && at.column == thread_index();"
  "at.source == loaded.source;")

rondo_mutant(sum_of_windows_as_own window_sum schedules 200 kernels/device/window_sum.cuh
  "if (window_of(sent) != window_of(operation_.sent)) from = windows[window_of(sent)][peer];"
  "")

rondo_mutant(sum_staging_is_not_released window_sum races 200 kernels/device/window_sum.cuh
  "ll_release(opening->line, line);"
  "ll_store(opening->line, line);")

rondo_mutant(sum_opening_not_trusted window_sum races 200 kernels/device/window_sum.cuh
  "    ll_trust(opening->line);
"
  "")

rondo_mutant(sum_closing_relaxed window_sum races 200 kernels/device/window_sum.cuh
  "store_release(word, counts_.openings);"
  "store_relaxed(word, counts_.openings);")

rondo_mutant(sum_closing_credit_relaxed window_sum races 200 kernels/device/window_sum.cuh
  "give_credit(word, counts_.openings);"
  "store_relaxed(word, counts_.openings);")

rondo_mutant(sum_closed_by_credit window_sum races 200 kernels/device/window_sum.cuh
  "      if (operation_.pieces == 1) {
        give_credit"
  "      if (operation_.pieces != 0) {
        give_credit")

rondo_mutant(sum_counts_kept_early window_sum races 200 kernels/device/window_sum.cuh
  "  RONDO_STAMP(opened);
"
  "  if (thread_index() == 0) store<std::uint64_t>(&header.opening_epoch[block_index()], counts.openings);
")

# ---- short messages

rondo_mutant(push_one_flag push schedules 200 kernels/device/push_line.cuh
  "return line.x >> 32 == flags.first && line.y >> 32 == flags.second;"
  "return line.x >> 32 == flags.first;")

rondo_mutant(push_flags_without_epoch push schedules 200 kernels/device/push_line.cuh
  "(epoch & 0x7fffu) | 0x8000u;"
  "(epoch & 1u) | 0x8000u;")

rondo_mutant(push_one_place push schedules 200 kernels/device/push.cuh
  "(epoch_ & 1)"
  "0u")

rondo_mutant(push_without_barrier push schedules 500 kernels/device/push.cuh
  "alive = !block_or(!alive);"
  "alive = alive && i >= 0;")

rondo_mutant(push_nothing_without_data push schedules 500 kernels/device/push.cuh
  "return lines == 0 ? 1 : lines;"
  "return lines;")

rondo_mutant(push_flag_of_fresh_memory push schedules 500 kernels/device/push_line.cuh
  "(epoch & 0x7fffu) | 0x8000u;"
  "epoch & 0x7fffu;")

rondo_mutant(push_refreshes_all push schedules 500 kernels/device/push.cuh
  "line = sent + thread_index(); line < kPushLines"
  "line = thread_index(); line < kPushLines")

rondo_mutant(push_epoch_kept_early push races 200 kernels/device/push.cuh
  "alive = !block_or(!alive);"
  "if (thread_index() == 0) store<std::uint32_t>(&header.push_epoch[block_index()], epoch);
    alive = !block_or(!alive);")

# ---- launches that may begin early

rondo_mutant(simple_without_wait_for_stream simple schedules 200 kernels/device/fifo_kernel.cuh
  "  await_stream();
"
  "")

rondo_mutant(window_without_wait_for_stream window schedules 200 kernels/device/window.cuh
  "  await_stream();
"
  "")

rondo_mutant(push_without_wait_for_stream push schedules 200 kernels/device/push.cuh
  "  await_stream();
"
  "")

rondo_mutant(push_waits_for_stream_late push schedules 200 kernels/device/push.cuh
  [[  await_stream();
  RONDO_STAMP(awaited);
  RegionHeader& header = *launch.header;
  std::uint32_t epoch = load<std::uint32_t>(&header.push_epoch[block_index()]);
]]
  [[  RegionHeader& header = *launch.header;
  std::uint32_t epoch = load<std::uint32_t>(&header.push_epoch[block_index()]);
  await_stream();
]])

rondo_mutant(sum_without_wait_for_stream window_sum schedules 200 kernels/device/window_sum.cuh
  "  await_stream();
"
  "")

rondo_mutant(window_thread_waits_for_all window schedules 200 kernels/device/window.cuh
  "  await_stream();
"
  "  if (thread_index() == 0) await_stream();
  block_sync();
")

# ---- histories

rondo_mutant(history_unchecked history schedules 200 kernels/device/sequence.cuh
  "return load_relaxed(&entry.key) == ~key_of(found) && found.sequence == sequence;"
  "return load_relaxed(&entry.key) != 0 && found.sequence == sequence;")

rondo_mutant(history_fresh history schedules 200 kernels/device/sequence.cuh
  "  return load_relaxed(&entry.key) == ~key_of(found) && found.sequence == sequence;"
  "  const std::uint64_t key = load_relaxed(&entry.key);
  return (key == 0 ? 0 : ~key) == key_of(found) && found.sequence == sequence;")
