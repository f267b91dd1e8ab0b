// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace consumer {

// Every declaration of the public contract, used once as written there. Throws when one does not hold.
void check_contract();

}  // namespace consumer
