// SPDX-License-Identifier: Apache-2.0
// Every target is a row.
#include "tests/fuzz/targets.hpp"

#include <vector>

namespace rondo::fuzz {

std::span<const Target> targets() {
  static const std::vector<Target> table = {
      {"rendezvous_core", "what clients send to a server", 1024, run_rendezvous_core, rendezvous_core_seeds},
      {"rendezvous_client", "what a server sends to a client", 8192, run_rendezvous_client, rendezvous_client_seeds},
      {"rendezvous_handshake", "what strangers say to a server or a client that has a secret", 1024,
       run_rendezvous_handshake, rendezvous_handshake_seeds},
      {"peer_handshake", "what strangers say to a rank that has a secret", 256, run_peer_handshake,
       peer_handshake_seeds},
      {"card", "what rank 0 says of itself, which all take over", 8192, run_card, card_seeds},
      {"advertisement", "where a rank listens", 2048, run_advertisement, advertisement_seeds},
      {"node_frame", "what the first rank of a node says", 128, run_node_frame, node_frame_seeds},
      {"device_card", "what a rank says of its device", 2048, run_device_card, device_card_seeds},
      {"growth", "what a rank of a communicator that grows says", 512, run_growth, growth_seeds},
      {"messages", "what a peer sends over the link of messages", 4096, run_messages, messages_seeds},
      {"control", "control messages of a rank of another node", 4096, run_control, control_seeds},
      {"signature", "what a rank says of its calls", 80, run_signature, signature_seeds},
      {"environment", "variables of launchers and schedulers", 2048, run_environment, environment_seeds},
      {"host_list", "lists of hosts", 1024, run_host_list, host_list_seeds},
      {"endpoint", "a host and a port", 512, run_endpoint, endpoint_seeds},
      {"configuration", "our own variables", 1024, run_configuration, configuration_seeds},
      {"tuning", "tuning files", 8192, run_tuning, tuning_seeds},
      {"checkpoint", "checkpoints of others", 4096, run_checkpoint, checkpoint_seeds},
      {"command_line", "rondorun's flags", 512, run_command_line, command_line_seeds},
      {"hostfile", "rondorun's --hostfile", 1024, run_hostfile, hostfile_seeds},
      {"node_words", "what launchers of several nodes write for each other", 512, run_node_words, node_words_seeds},
      {"values", "values that ranks gather from each other", 1024, run_values, values_seeds},
      {"ssh_hosts", "rondorun's --hosts", 1024, run_ssh_hosts, ssh_hosts_seeds},
      {"order", "what rondorun orders a rondorun on another host to do", 1024, run_order, order_seeds},
      {"failure_folder", "what rondo explain shows", 8192, run_failure_folder, failure_folder_seeds},
      {"snapshot", "what a launcher answers rondo top", 8192, run_snapshot, snapshot_seeds},
      {"error_file", "why a rank failed, as it says itself", 2048, run_error_file, error_file_seeds},
      {"meeting_file", "where rank 0 serves", 1024, run_meeting_file, meeting_file_seeds},
      {"tls", "bytes of strangers on an encrypted connection", 1024, run_tls, tls_seeds},
      {"segment", "failures and calls in memory that ranks share", 2304, run_segment, segment_seeds},
      {"screen", "what ranks draw on their terminals", 2048, run_screen, screen_seeds},
  };
  return table;
}

}  // namespace rondo::fuzz
