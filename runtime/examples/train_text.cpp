// SPDX-License-Identifier: Apache-2.0
// Data-parallel training of a small character-level transformer.
#include "runtime/examples/training.hpp"

int main(int argc, char **argv)
{
    using namespace jigsaw::examples;
    return train_main(text_defaults(), make_text,
                      "Trains a character-level transformer, in four blocks, on a text (the King James Bible of Debian's\n"
                      "bible-kjv, or --data FILE) and prints its loss on a part that it did not see.",
                      argc, argv);
}
