// SPDX-License-Identifier: Apache-2.0
// What the table of targets names. Those of one subject lie in one file of targets/.
#pragma once
#include "tests/fuzz/target.hpp"

namespace rondo::fuzz {

void run_rendezvous_core(Bytes input);
std::vector<std::string> rendezvous_core_seeds();
void run_rendezvous_client(Bytes input);
std::vector<std::string> rendezvous_client_seeds();
void run_rendezvous_handshake(Bytes input);
std::vector<std::string> rendezvous_handshake_seeds();
void run_peer_handshake(Bytes input);
std::vector<std::string> peer_handshake_seeds();
void run_card(Bytes input);
std::vector<std::string> card_seeds();
void run_advertisement(Bytes input);
std::vector<std::string> advertisement_seeds();
void run_node_frame(Bytes input);
std::vector<std::string> node_frame_seeds();
void run_messages(Bytes input);
std::vector<std::string> messages_seeds();
void run_control(Bytes input);
std::vector<std::string> control_seeds();
void run_signature(Bytes input);
std::vector<std::string> signature_seeds();
void run_environment(Bytes input);
std::vector<std::string> environment_seeds();
void run_host_list(Bytes input);
std::vector<std::string> host_list_seeds();
void run_endpoint(Bytes input);
std::vector<std::string> endpoint_seeds();
void run_ssh_hosts(Bytes input);
std::vector<std::string> ssh_hosts_seeds();
void run_configuration(Bytes input);
std::vector<std::string> configuration_seeds();
void run_tuning(Bytes input);
std::vector<std::string> tuning_seeds();
void run_checkpoint(Bytes input);
std::vector<std::string> checkpoint_seeds();
void run_screen(Bytes input);
std::vector<std::string> screen_seeds();
void run_device_card(Bytes input);
std::vector<std::string> device_card_seeds();
void run_growth(Bytes input);
std::vector<std::string> growth_seeds();
void run_order(Bytes input);
std::vector<std::string> order_seeds();
void run_failure_folder(Bytes input);
std::vector<std::string> failure_folder_seeds();
void run_snapshot(Bytes input);
std::vector<std::string> snapshot_seeds();
void run_error_file(Bytes input);
std::vector<std::string> error_file_seeds();
void run_meeting_file(Bytes input);
std::vector<std::string> meeting_file_seeds();
void run_tls(Bytes input);
std::vector<std::string> tls_seeds();
void run_segment(Bytes input);
std::vector<std::string> segment_seeds();
void run_command_line(Bytes input);
std::vector<std::string> command_line_seeds();
void run_hostfile(Bytes input);
std::vector<std::string> hostfile_seeds();
void run_node_words(Bytes input);
std::vector<std::string> node_words_seeds();
void run_values(Bytes input);
std::vector<std::string> values_seeds();

}  // namespace rondo::fuzz
