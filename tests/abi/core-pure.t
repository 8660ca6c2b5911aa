#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plugin/core is pure: its objects ask nobody for time, files, environment, randomness, threads or a terminal. Whatever
# they leave undefined must be C++ itself (mangled or its run-time), memory, mathematics, or runtime/plan.
set -u
: "${top_builddir:=.}"
NM=${NM:-nm}
objects=$(ls "$top_builddir"/plugin/core/.libs/*.o "$top_builddir"/runtime/plan/.libs/*.o 2>/dev/null)
[ -n "$objects" ] || objects=$(ls "$top_builddir"/plugin/core/*.o 2>/dev/null)

# Names with C linkage that pure code may use; sanitizers and coverage add their own.
allowed='^(_Z.*|__cxa_.*|__gxx_personality_v0|_Unwind_.*|__dso_handle|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_'
allowed="$allowed"'|(mem|str)(cpy|move|set|cmp|len|chr|ncpy|ncmp)|__(mem|str)(cpy|move|set|len)_chk|bcmp'
allowed="$allowed"'|(v?snprintf|__v?snprintf_chk)|abort|__assert_fail|__atomic_.*|__(float|fix|u?div|u?mod)[a-z0-9]*'
allowed="$allowed"'|(log2|log|exp|ldexp|pow|floor|ceil|round|lround|fmod|sqrt|fmin|fmax)f?'
allowed="$allowed"'|__(asan|ubsan|tsan|lsan|sanitizer|gcov)_.*|__tls_get_addr)$'
# Mangled names that are not pure all the same: clocks, streams, threads, locks, random devices, the C++ file system.
impure='chrono.*now|basic_[io]?f?stream|filebuf|4cout|4cerr|3cin|thread|mutex|condition_variable|random_device|filesystem'

undefined() { $NM --undefined-only -P "$@" | awk '{ if ($2 == "U" || $2 == "w" || $2 == "v") print $1 }' | sort -u; }
forbidden() { undefined "$@" | awk -v allowed="$allowed" -v impure="$impure" '$1 !~ allowed || $1 ~ impure'; }

echo "1..3"
count=$(echo "$objects" | grep -c .)
if [ "$count" -ge 6 ]; then echo "ok 1 - found the $count objects of core and plan"
else echo "not ok 1 - found the objects of core and plan ($count under $top_builddir)"; fi

# shellcheck disable=SC2086
found=$(forbidden $objects)
if [ "$count" -gt 0 ] && [ -z "$found" ]; then echo "ok 2 - core asks for nothing that is not pure"
else echo "not ok 2 - core asks for nothing that is not pure"; echo "$found" | sed 's/^/# uses /'; fi

# The check itself must be able to fail: a file that does everything forbidden, each of which has to be named.
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cat > "$dir/impure.cpp" <<'IMPURE'
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <random>
#include <unistd.h>
int everything()
{
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    std::ofstream file("x");
    timespec now;
    pthread_t thread;
    std::printf("%s", std::getenv("HOME"));
    return open("x", O_RDONLY) + clock_gettime(CLOCK_REALTIME, &now) +
           pthread_create(&thread, nullptr, [](void *p) { return p; }, nullptr) + std::rand() +
           static_cast<int>(std::chrono::steady_clock::now().time_since_epoch().count()) +
           static_cast<int>(time(nullptr)) + getpid() + static_cast<int>(std::random_device()());
}
IMPURE
missed=
if ${CXX:-c++} -std=c++17 -c "$dir/impure.cpp" -o "$dir/impure.o" 2>"$dir/why"; then
    named=$(forbidden "$dir/impure.o")
    for name in open clock_gettime pthread_create getenv rand time getpid printf steady_clock random_device; do
        echo "$named" | grep -q "$name" || missed="$missed $name"
    done
else missed=" (it did not compile)"; sed 's/^/# /' "$dir/why"; fi
if [ -z "$missed" ]; then echo "ok 3 - a file that does everything forbidden is caught"
else echo "not ok 3 - a file that does everything forbidden is caught, but for:$missed"; fi
