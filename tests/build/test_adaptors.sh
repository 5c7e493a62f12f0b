#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The adaptors as they are installed, compiled with the vendors' headers that are here, without a warning, and run on the host device and on
# simulated CUDA. scripts/adaptor-packages fetches the headers: CI has the short list, `make nightly` all. The examples compile and run as well.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_adaptors: $*" >&2; exit 1; }
packages=${TARN_ADAPTOR_PACKAGES:-$TARN_SOURCE/build/adaptor-packages}
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || { echo "test_adaptors: no C++ compiler; scripts/setup test installs one"; exit 77; }

cuda=
for found in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    [ -z "$found" ] || [ ! -e "$found/include/cuda_runtime_api.h" ] || { cuda=$found/include; break; }
done
if [ -z "$cuda" ] || [ ! -d "$packages/nvidia-cuda-cccl" ]; then
    [ "${CI:-}" != true ] || fail "the CUDA toolkit or $packages/nvidia-cuda-cccl is missing; scripts/adaptor-packages fetches the latter"
fi

cmake --install "$TARN_BUILD" --prefix "$work/prefix" >/dev/null
library=$(dirname "$(find "$work/prefix" -name libtarn_adaptors.so)")
warnings=(-O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror)
ours=(-I"$work/prefix/include")
link=(-L"$library" -ltarn_adaptors -ltarn "-Wl,-rpath,$library" -pthread)
export TARN_HOST_DEVICES=2 TARN_HOST_MEMORY=1073741824
tried=() left=()

# run NAME: the program of that name on both drivers.
run()
{
    TARN_DRIVER=host "$work/$1" >"$work/$1.out" || fail "$1 on the host device: $(cat "$work/$1.out")"
    [ ! -d "$TARN_BUILD/sim" ] || TARN_DRIVER=cuda LD_LIBRARY_PATH=$TARN_BUILD/sim "$work/$1" >>"$work/$1.out" || fail "$1 on simulated CUDA: $(cat "$work/$1.out")"
    tried+=("$1")
}

# package PATH: PATH below the packages, if it is there.
package() { [ -e "$packages/$1" ]; }

# The functions beside all the headers that are here.
with=()
handler()
{
    if [ -e "$2" ]; then with+=("-DHAVE_$1" -isystem "$2"); else left+=("$1"); fi
}
if [ -n "$cuda" ]; then
    with+=(-isystem "$cuda")
    cudss=${CUDSS_DIR:-$TARN_SOURCE/build/cudss}/include
    handler CUDSS "$cudss"
    handler CUSTATEVEC "$packages/custatevec-cu13/cuquantum/include"
    handler CUTENSORNET "$packages/cutensornet-cu13/cuquantum/include"
    handler NVJPEG "$packages/nvidia-nvjpeg/nvidia/cu13/include"
    handler NVJPEG2K "$packages/nvidia-nvjpeg2k-cu13/nvidia/nvjpeg2k/include"
    handler NVIMGCODEC "$packages/nvidia-nvimgcodec-cu13/nvidia/nvimgcodec/include"
fi
"$CC" -std=c11 "${warnings[@]}" "${ours[@]}" "${with[@]}" tests/adaptors/handlers.c -o "$work/handlers" "${link[@]}"
run handlers
[ ! -d "$packages/nvidia-nvjpeg" ] || [ -z "$cuda" ] ||
    "$CC" -std=c11 "${warnings[@]}" "${ours[@]}" "${with[@]}" -fsyntax-only examples/adaptors/nvjpeg.c

tvm=$packages/apache-tvm-ffi/tvm_ffi
if [ -d "$tvm" ]; then
    "$CC" -std=c11 "${warnings[@]}" -DHAVE_TVM_FFI "${ours[@]}" -isystem "$tvm/include" tests/adaptors/dlpack.c -o "$work/dlpack" \
        "${link[@]}" -L"$tvm/lib" -ltvm_ffi "-Wl,-rpath,$tvm/lib"
    run dlpack
    "$CC" -std=c11 "${warnings[@]}" "${ours[@]}" -isystem "$tvm/include" examples/adaptors/dlpack.c -o "$work/dlpack-example" \
        "${link[@]}" -L"$tvm/lib" -ltvm_ffi "-Wl,-rpath,$tvm/lib"
    run dlpack-example
else
    left+=(DLPack)
fi

tensorrt=tests/adaptors/stand_in
[ ! -e "${TENSORRT_DIR:-none}/include/NvInferRuntime.h" ] || tensorrt=$TENSORRT_DIR/include
"$cxx" -std=c++17 "${warnings[@]}" -Wno-deprecated-declarations "${ours[@]}" -isystem "$tensorrt" ${cuda:+-isystem "$cuda"} \
    tests/adaptors/tensorrt.cc -o "$work/tensorrt" "${link[@]}"
run tensorrt
[ "$tensorrt" = tests/adaptors/stand_in ] ||
    "$cxx" -std=c++17 "${warnings[@]}" -Wno-deprecated-declarations "${ours[@]}" -isystem "$tensorrt" ${cuda:+-isystem "$cuda"} \
        -fsyntax-only examples/adaptors/tensorrt.cc

# CCCL of the toolkit, of the wheel, and of RMM.
cccl()
{
    local name=$1
    shift
    "$cxx" -std=c++20 "${warnings[@]}" "${ours[@]}" "$@" -isystem "$cuda" tests/adaptors/cccl.cc -o "$work/$name" "${link[@]}" "${more[@]}"
    run "$name"
}
if [ -n "$cuda" ]; then
    more=()
    [ ! -d "$cuda/cccl" ] || cccl cccl-toolkit -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE -isystem "$cuda/cccl"
    ! package nvidia-cuda-cccl || cccl cccl -isystem "$packages/nvidia-cuda-cccl/nvidia/cu13/include/cccl"
    if package librmm-cu13 && package rapids-logger; then
        rmm=$packages/librmm-cu13/librmm logger=$packages/rapids-logger/rapids_logger
        more=("-Wl,--no-as-needed" -L"$rmm/lib64" -lrmm -L"$logger/lib64" -lrapids_logger "-Wl,-rpath,$rmm/lib64:$logger/lib64")
        cccl rmm -DHAVE_RMM -isystem "$rmm/include" -isystem "$rmm/include/rapids" -isystem "$logger/include"
    else
        left+=(RMM)
    fi
fi

onnxruntime=$packages/onnxruntime/onnxruntime/capi headers=$packages/onnxruntime-headers/usr/include/onnxruntime
if [ -e "$onnxruntime/libonnxruntime.so" ] && [ -d "$headers" ]; then
    "$CC" -std=c11 "${warnings[@]}" "${ours[@]}" -isystem "$headers" tests/adaptors/onnxruntime.c -o "$work/onnxruntime" \
        "${link[@]}" -L"$onnxruntime" -lonnxruntime "-Wl,-rpath,$onnxruntime"
    run onnxruntime
    "$CC" -std=c11 "${warnings[@]}" "${ours[@]}" -isystem "$headers" -fsyntax-only examples/adaptors/onnxruntime.c
    echo '#include <tarn/adaptors/tarn_onnxruntime.h>' |
        "$cxx" -std=c++17 "${warnings[@]}" -Wno-unused-function "${ours[@]}" -isystem "$headers" -x c++ -fsyntax-only -
else
    left+=("ONNX Runtime")
fi

# What the library exports is what its headers declare.
declared=$(grep -hoE 'TARN_API [a-z]+ tarn_[a-z_]+' "$work"/prefix/include/tarn/adaptors/*.h | awk '{ print $3 }' | sort)
exported=$(nm -D --defined-only "$library/libtarn_adaptors.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort)
[ "$declared" = "$exported" ] || fail "declared and exported differ: $(diff <(echo "$declared") <(echo "$exported"))"

cat "$work"/*.out
echo "test_adaptors: ${tried[*]}"
[ ${#left[@]} -eq 0 ] || echo "test_adaptors: not here, and so not tried: ${left[*]}"
[ -n "$cuda" ] || exit 77
