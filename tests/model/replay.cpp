// SPDX-License-Identifier: Apache-2.0
// replay [FILE]: reads a gate log from FILE or standard input. Prints how many lines and grants the model of the gate
// accepted and exits 0, or prints FILE:LINE, the reason and the line, and exits 1. A log without a grant is refused
// too, since it shows nothing (--allow-empty takes it); 2 means that there was nothing to read.
#include "tests/model/gate_log.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

int main(int argc, char **argv)
{
    const bool allow_empty = argc > 1 && std::strcmp(argv[1], "--allow-empty") == 0;
    const char *path = argc > 1 + allow_empty ? argv[1 + allow_empty] : nullptr;
    std::ifstream file;
    if (path) {
        file.open(path);
        if (!file) {
            std::fprintf(stderr, "replay: %s: cannot be read\n", path);
            return 2;
        }
    }
    std::istream &in = path ? file : std::cin;
    jigsaw::tests::GateLog log;
    for (std::string line; std::getline(in, line);) {
        const std::string why = log.accept(line);
        if (!why.empty()) {
            std::printf("%s:%zu: %s: %s\n", path ? path : "stdin", log.lines(), why.c_str(), line.c_str());
            return 1;
        }
    }
    std::printf("accepted: %zu lines, %zu grants\n", log.lines(), log.grants());
    return log.grants() > 0 || allow_empty ? 0 : 1;
}
