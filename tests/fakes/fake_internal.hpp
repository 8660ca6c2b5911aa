// SPDX-License-Identifier: Apache-2.0
// Between the two halves of fake_gpu.so.
#ifndef JIGSAW_TESTS_FAKES_FAKE_INTERNAL_HPP
#define JIGSAW_TESTS_FAKES_FAKE_INTERNAL_HPP

#include <functional>
#include <string>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace jigsaw::tests::fake {

/// Counts the call; 0, or the code that was injected for it.
int enter(const char *function);
void violation(const std::string &text);
/// Queues work of the device itself (a collective): not a host function.
void enqueue(void *stream, std::function<void()> work);
bool device_broken();

} // namespace jigsaw::tests::fake
#endif
