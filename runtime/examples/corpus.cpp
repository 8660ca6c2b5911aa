// SPDX-License-Identifier: Apache-2.0
#include "runtime/examples/corpus.hpp"

#include "runtime/examples/training.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

namespace jigsaw::examples {

namespace {

/// Below this, validation windows would overlap most of the text.
constexpr std::size_t kLeastBytes = 20000;

std::string read_all(std::FILE *file)
{
    std::string text;
    std::array<char, 65536> part{};
    for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), file)) > 0;)
        text.append(part.data(), n);
    return text;
}

/// Every verse on a line of its own, as -l with a large width gives it, without its "Ge1:1".
std::string king_james()
{
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> pipe(popen("bible -f -l 100000 gen1:1-rev22:21 2>/dev/null", "r"),
                                                                pclose);
    const std::string printed = pipe ? read_all(pipe.get()) : "";
    std::string text;
    for (std::size_t at = 0; at < printed.size();) {
        const std::size_t end = std::min(printed.find('\n', at), printed.size());
        const std::size_t verse = std::min(printed.find(' ', at), end);
        text.append(printed, std::min(verse + 1, end), end - std::min(verse + 1, end)).append("\n");
        at = end + 1;
    }
    return text;
}

std::string read_file(const std::string &path)
{
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "re"), [](std::FILE *open) {
        return open != nullptr ? std::fclose(open) : 0;
    });
    return file ? read_all(file.get()) : "";
}

} // namespace

Corpus read_corpus(const std::string &source)
{
    const std::string text = source == kKingJames ? king_james() : read_file(source);
    if (text.size() < kLeastBytes)
        throw NoData{source == kKingJames ? "bible(1) is missing; install bible-kjv, or give --data FILE"
                                          : source + " has " + std::to_string(text.size()) + " bytes; at least " +
                                                std::to_string(kLeastBytes) + " are needed"};
    Corpus corpus;
    std::array<int, 256> number{};
    number.fill(-1);
    for (const char c : text)
        number[static_cast<unsigned char>(c)] = 0;
    for (std::size_t c = 0; c < number.size(); ++c)
        if (number[c] == 0) {
            number[c] = static_cast<int>(corpus.alphabet.size());
            corpus.alphabet += static_cast<char>(c);
        }
    for (const char c : text)
        corpus.letters.push_back(static_cast<std::uint8_t>(number[static_cast<unsigned char>(c)]));
    return corpus;
}

} // namespace jigsaw::examples
