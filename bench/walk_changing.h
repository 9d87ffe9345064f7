// Walks over stacks that no walk has seen: nanoseconds a frame, beside the peers and the least that loads take.
#pragma once

#include <vector>

#include "walk_peers.h"

void print_changing_stacks(const std::vector<Peer>& peers, int rounds);
