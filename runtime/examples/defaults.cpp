// SPDX-License-Identifier: Apache-2.0
// Defaults of the two programs: width and batch give both about 50 ms per full-depth iteration on one core, and a
// backward pass of about twice the forward one.
#include "runtime/examples/corpus.hpp"
#include "runtime/examples/training.hpp"

namespace jigsaw::examples {

Options digits_defaults()
{
    Options options;
    options.program = "train_digits";
    options.data = JIGSAW_DIGITS_FILE;
    options.iterations = 300;
    options.batch = 14;
    options.width = 96;
    options.lr = 0.05;
    return options;
}

Options text_defaults()
{
    Options options;
    options.program = "train_text";
    options.data = kKingJames;
    options.iterations = 300;
    options.batch = 8;
    options.width = 128;
    options.optimizer = "adam";
    options.lr = 0.004;
    options.lr_warmup = 0.05;
    return options;
}

} // namespace jigsaw::examples
