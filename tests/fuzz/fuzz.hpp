// SPDX-License-Identifier: Apache-2.0
// Fuzzing a parser in `make check`, without libFuzzer: a fuzz program defines LLVMFuzzerTestOneInput() and this header's
// main() feeds it its corpus and some thousands of mutations of it, the same ones in each run. With libFuzzer:
//
//     flags="-std=c++17 -g -fsanitize=fuzzer,address,undefined -DJIGSAW_LIBFUZZER -I. -Iruntime/include"
//     clang++ $flags -o f tests/fuzz/fuzz_options.cpp plugin/config/options.cpp plugin/config/text.cpp
//     ./f tests/fuzz/corpus/options
//
// FUZZ_RUNS and FUZZ_SEED choose another number of mutations and other ones.
#ifndef JIGSAW_TESTS_FUZZ_FUZZ_HPP
#define JIGSAW_TESTS_FUZZ_FUZZ_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace jigsaw::fuzz {

/// The target counts what its parser took and what it refused: a run that saw only one kind tested little.
inline std::size_t accepted = 0, refused = 0;

/// A property that must hold for every input.
inline void require(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "# broken: %s\n", what);
    std::abort();
}

/// What may be printed in a log: one line, printable, not endless.
inline void require_message(const std::string &why)
{
    require(!why.empty() && why.size() < 600, "a refusal says why, in less than 600 characters");
    for (char c : why)
        require(c >= ' ' && c <= '~', "a refusal is printable");
}

} // namespace jigsaw::fuzz

#ifndef JIGSAW_LIBFUZZER
#include <algorithm>
#include <csignal>
#include <dirent.h>
#include <fstream>
#include <iterator>
#include <random>
#include <unistd.h>
#include <vector>

namespace jigsaw::fuzz {

inline unsigned long long seed = 1, run = 0;

inline void say_where(int signal)
{
    char line[128];
    const int length = std::snprintf(line, sizeof line, "not ok 1 - FUZZ_SEED=%llu, run %llu: signal %d\n", seed, run, signal);
    if (write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) < 0)
        _exit(2);
    _exit(1);
}

inline std::vector<std::string> read_corpus(const std::string &folder)
{
    std::vector<std::string> names, inputs;
    if (DIR *stream = opendir(folder.c_str())) {
        while (const dirent *entry = readdir(stream))
            names.emplace_back(entry->d_name);
        closedir(stream);
    }
    std::sort(names.begin(), names.end()); // the same order everywhere, for the same mutations
    for (const std::string &name : names) {
        if (name[0] == '.')
            continue;
        std::ifstream file(folder + "/" + name, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return inputs;
}

/// One to eight small changes; now and then a piece of another input.
inline std::string mutate(const std::vector<std::string> &corpus, std::mt19937_64 &random)
{
    const auto below = [&](std::size_t limit) { return limit ? static_cast<std::size_t>(random() % limit) : 0; };
    static constexpr char kOdd[] = "\0\n\t =:-.,0199aZ_/%#\"'[]{}&*\\\x7f\x80\xff"; // its last byte counts too: NUL
    std::string text = corpus[below(corpus.size())];
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) {
        const std::size_t at = below(text.size() + 1), length = std::min(below(16), text.size() - at);
        switch (below(6)) {
        case 0: text.insert(at, 1, kOdd[below(sizeof kOdd)]); break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, text.substr(at, length)); break;
        case 3: text.insert(at, 1, static_cast<char>(random())); break;
        case 4: if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8))); break;
        default: {
            const std::string &other = corpus[below(corpus.size())];
            text.insert(at, other.substr(below(other.size() + 1), below(64)));
        }
        }
    }
    return text;
}

inline void feed(const std::string &text)
{
    ++run;
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t *>(text.data()), text.size());
}

inline unsigned long long setting(const char *name, unsigned long long usual)
{
    const char *text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : usual;
}

/// `name`: of the folder in tests/fuzz/corpus, and the program.
inline int run_fuzz(const char *name, unsigned long long usual_runs)
{
    const char *source = std::getenv("top_srcdir");
    const std::vector<std::string> corpus = read_corpus(std::string(source ? source : ".") + "/tests/fuzz/corpus/" + name);
    seed = setting("FUZZ_SEED", seed);
    for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
        std::signal(signal, say_where);
    std::printf("1..1\n");
    std::fflush(stdout);
    if (corpus.empty()) {
        std::printf("not ok 1 - no corpus for %s\n", name);
        return 1;
    }
    for (const std::string &input : corpus)
        feed(input);
    std::mt19937_64 random(seed);
    for (unsigned long long left = setting("FUZZ_RUNS", usual_runs); left > 0; --left)
        feed(mutate(corpus, random));
    const bool is_good = accepted > 0 && refused > 0;
    std::printf("%sok 1 - %s: %llu inputs, %zu taken, %zu refused\n", is_good ? "" : "not ", name, run, accepted, refused);
    return is_good ? 0 : 1;
}

} // namespace jigsaw::fuzz

#define JIGSAW_FUZZ_MAIN(name, usual_runs)                                                                             \
    int main() { return jigsaw::fuzz::run_fuzz(name, usual_runs); }
#else
#define JIGSAW_FUZZ_MAIN(name, usual_runs)
#endif

#endif
