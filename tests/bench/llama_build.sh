#!/usr/bin/env bash
# llama_build.sh DIR - llama.cpp (the source inside its Python package) with all that this CPU has, and our driver llama_bench beside it.
#
# GCC 12's _tile_loadconfig names only 8 of the 64 configuration bytes as its input, so an AMX build dies with SIGILL: tilefix.h
# mends that, or the baseline would be a slower one. About six minutes on two cores, once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: llama_build.sh DIR}
version=0.3.36
mkdir -p "$dir"
dir=$(realpath "$dir")
src=$dir/llama_cpp_python-$version/vendor/llama.cpp
if [ ! -d "$src" ]; then
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" -q download --no-deps --no-binary :all: -d "$dir" "llama-cpp-python==$version"
    tar -C "$dir" -xf "$dir/llama_cpp_python-$version.tar.gz"
fi
cat >"$dir/tilefix.h" <<'H'
#ifndef TILEFIX_H
#define TILEFIX_H
#if defined(__AMX_TILE__)
#include <immintrin.h>
#define _tile_loadconfig(p) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(p)) : "memory")
#endif
#endif
H
if [ ! -e "$dir/build/bin/libllama.so" ]; then
    cmake -S "$src" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=ON \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TOOLS=ON \
        -DLLAMA_CURL=OFF "-DCMAKE_CXX_FLAGS=-include $dir/tilefix.h" "-DCMAKE_C_FLAGS=-include $dir/tilefix.h" >"$dir/log"
    cmake --build "$dir/build" -j"$(nproc)" --target llama >>"$dir/log"
fi
gcc -O2 -I"$src/include" -I"$src/ggml/include" "$here/llama_bench.c" -o "$dir/llama_bench" \
    -L"$dir/build/bin" -lllama -lggml -lggml-base "-Wl,-rpath,$dir/build/bin"
