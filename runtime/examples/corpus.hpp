// SPDX-License-Identifier: Apache-2.0
// A text as numbers of letters. No LibTorch here.
#ifndef JIGSAW_EXAMPLES_CORPUS_HPP
#define JIGSAW_EXAMPLES_CORPUS_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::examples {

struct Corpus {
    std::string alphabet;              ///< letter number -> character
    std::vector<std::uint8_t> letters; ///< the text
};

/// `source` is a plain text file, or kKingJames: what Debian's bible(1) (bible-kjv, bible-kjv-text) prints.
/// Throws NoData where there is none.
constexpr const char *kKingJames = "bible-kjv";
Corpus read_corpus(const std::string &source);

} // namespace jigsaw::examples
#endif
