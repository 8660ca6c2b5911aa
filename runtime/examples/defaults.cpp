// SPDX-License-Identifier: Apache-2.0
// Defaults of the two programs: the widths give both the same time per full-depth iteration on one core.
#include "runtime/examples/corpus.hpp"
#include "runtime/examples/training.hpp"

namespace jigsaw::examples {

Options digits_defaults()
{
    Options options;
    options.program = "train_digits";
    options.data = JIGSAW_DIGITS_FILE;
    options.iterations = 300;
    options.batch = 32;
    options.width = 64;
    options.lr = 0.05;
    return options;
}

Options text_defaults()
{
    Options options;
    options.program = "train_text";
    options.data = kKingJames;
    options.iterations = 300;
    options.batch = 16;
    options.width = 64;
    options.optimizer = "adam";
    options.lr = 0.004;
    options.lr_warmup = 0.05;
    return options;
}

} // namespace jigsaw::examples
