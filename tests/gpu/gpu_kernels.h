/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kernels, as PTX that every driver since CUDA 9 compiles for every device from Maxwell on. Word i
 * of a pattern is seed + i * 2654435761. Each waits first, so that work that was let run too early
 * or too late shows:
 *   tarn_fill(words, count, seed, wait_ns)
 *   tarn_check(words, count, seed, wait_ns, found)   found[0] += wrong words; found[1] = the first;
 *                                                    found[2] = what it was
 *   tarn_spin(wait_ns)                               takes time, touches nothing
 *   tarn_add(words, count, others)                   adds the others to the words, and does not
 *                                                    wait */
#ifndef TESTS_GPU_GPU_KERNELS_H
#define TESTS_GPU_GPU_KERNELS_H

/* %d9 is the index, %d10 the stride, %d1 the count, %d0 the words, %r0 the seed. */
#define GPU_PTX_REGISTERS \
    ".reg .pred %q<4>;\n" \
    ".reg .b32 %r<16>;\n" \
    ".reg .b64 %d<20>;\n"
#define GPU_PTX_WAIT               \
    "mov.u64 %d3, %globaltimer;\n" \
    "WAIT:\n"                      \
    "mov.u64 %d4, %globaltimer;\n" \
    "sub.u64 %d4, %d4, %d3;\n"     \
    "setp.lt.u64 %q0, %d4, %d2;\n" \
    "@%q0 bra WAIT;\n"
#define GPU_PTX_INDEX                \
    "mov.u32 %r1, %ctaid.x;\n"       \
    "mov.u32 %r2, %ntid.x;\n"        \
    "mov.u32 %r3, %tid.x;\n"         \
    "mov.u32 %r4, %nctaid.x;\n"      \
    "mul.wide.u32 %d9, %r1, %r2;\n"  \
    "cvt.u64.u32 %d11, %r3;\n"       \
    "add.u64 %d9, %d9, %d11;\n"      \
    "mul.wide.u32 %d10, %r4, %r2;\n" \
    "cvta.to.global.u64 %d0, %d0;\n" \
    "LOOP:\n"                        \
    "setp.ge.u64 %q1, %d9, %d1;\n"   \
    "@%q1 bra DONE;\n"               \
    "shl.b64 %d12, %d9, 2;\n"        \
    "add.u64 %d12, %d0, %d12;\n"     \
    "cvt.u32.u64 %r5, %d9;\n"        \
    "mad.lo.u32 %r6, %r5, 0x9E3779B1, %r0;\n"

static const char gpu_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry tarn_fill(.param .u64 words, .param .u64 count, .param .u32 seed, .param .u64 "
    "wait)\n"
    "{\n" GPU_PTX_REGISTERS "ld.param.u64 %d0, [words];\n"
    "ld.param.u64 %d1, [count];\n"
    "ld.param.u32 %r0, [seed];\n"
    "ld.param.u64 %d2, [wait];\n" GPU_PTX_WAIT GPU_PTX_INDEX "st.global.u32 [%d12], %r6;\n"
    "add.u64 %d9, %d9, %d10;\n"
    "bra LOOP;\n"
    "DONE:\n"
    "ret;\n"
    "}\n"
    ".visible .entry tarn_check(.param .u64 words, .param .u64 count, .param .u32 seed, .param "
    ".u64 wait,\n"
    "                           .param .u64 found)\n"
    "{\n" GPU_PTX_REGISTERS "ld.param.u64 %d0, [words];\n"
    "ld.param.u64 %d1, [count];\n"
    "ld.param.u32 %r0, [seed];\n"
    "ld.param.u64 %d2, [wait];\n"
    "ld.param.u64 %d13, [found];\n"
    "cvta.to.global.u64 %d13, %d13;\n"
    "mov.u64 %d15, 1;\n" GPU_PTX_WAIT GPU_PTX_INDEX "ld.global.u32 %r7, [%d12];\n"
    "setp.eq.u32 %q2, %r7, %r6;\n"
    "@%q2 bra NEXT;\n"
    "atom.global.add.u64 %d16, [%d13], %d15;\n"
    "atom.global.min.u64 %d17, [%d13+8], %d9;\n"
    "cvt.u64.u32 %d18, %r7;\n"
    "st.global.u64 [%d13+16], %d18;\n"
    "NEXT:\n"
    "add.u64 %d9, %d9, %d10;\n"
    "bra LOOP;\n"
    "DONE:\n"
    "ret;\n"
    "}\n"
    ".visible .entry tarn_spin(.param .u64 wait)\n"
    "{\n" GPU_PTX_REGISTERS "ld.param.u64 %d2, [wait];\n" GPU_PTX_WAIT "ret;\n"
    "}\n"
    ".visible .entry tarn_add(.param .u64 words, .param .u64 count, .param .u64 others)\n"
    "{\n" GPU_PTX_REGISTERS "ld.param.u64 %d0, [words];\n"
    "ld.param.u64 %d1, [count];\n"
    "ld.param.u64 %d13, [others];\n"
    "cvta.to.global.u64 %d13, %d13;\n"
    "mov.u32 %r0, 0;\n" GPU_PTX_INDEX "shl.b64 %d14, %d9, 2;\n"
    "add.u64 %d14, %d13, %d14;\n"
    "ld.global.u32 %r7, [%d12];\n"
    "ld.global.u32 %r8, [%d14];\n"
    "add.u32 %r7, %r7, %r8;\n"
    "st.global.u32 [%d12], %r7;\n"
    "add.u64 %d9, %d9, %d10;\n"
    "bra LOOP;\n"
    "DONE:\n"
    "ret;\n"
    "}\n";

#endif
